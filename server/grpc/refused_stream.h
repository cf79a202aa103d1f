// Server stream that fails before its first message.
#ifndef TRIPTYCH_SERVER_GRPC_REFUSED_STREAM_H_
#define TRIPTYCH_SERVER_GRPC_REFUSED_STREAM_H_

#include <grpcpp/support/server_callback.h>

namespace triptych::server {

// Finishes with `status` at once. Deletes itself.
template <typename Response>
class RefusedStream final : public grpc::ServerWriteReactor<Response> {
 public:
  explicit RefusedStream(const grpc::Status& status) { this->Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_REFUSED_STREAM_H_
