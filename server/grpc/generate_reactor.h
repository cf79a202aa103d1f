// The server's side of one Generate stream.
#ifndef TRIPTYCH_SERVER_GRPC_GENERATE_REACTOR_H_
#define TRIPTYCH_SERVER_GRPC_GENERATE_REACTOR_H_

#include "server/grpc/stream_reactor.h"
#include "server/grpc/wire.h"
#include "triptych/v1/inference.pb.h"

namespace triptych::server {

// A message for each chunk.
class GenerateReactor final : public StreamReactor<v1::GenerateResponse> {
 public:
  using StreamReactor::StreamReactor;

 private:
  void AddChunk(const StreamChunk& chunk, Messages& messages) override {
    messages.push_back(ToProto(chunk, call().id()));
  }
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_GENERATE_REACTOR_H_
