// The server's side of one Generate stream.
#ifndef TRIPTYCH_SERVER_GRPC_GENERATE_REACTOR_H_
#define TRIPTYCH_SERVER_GRPC_GENERATE_REACTOR_H_

#include <grpcpp/alarm.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include "server/grpc/call_reactor.h"
#include "triptych/v1/inference.pb.h"

namespace triptych::server {

// Writes the call's chunks to the stream.
class GenerateReactor final : public CallReactor<grpc::ServerWriteReactor<v1::GenerateResponse>> {
 public:
  // `draining`: whether the server closes connections with their last stream.
  GenerateReactor(grpc::CallbackServerContext& context, std::chrono::milliseconds stall_timeout,
                  std::shared_ptr<const std::atomic<bool>> draining)
      : CallReactor(context, stall_timeout), draining_(std::move(draining)) {}

  void OnWriteDone(bool ok) override;

 private:
  void Advance() override;

  const std::shared_ptr<const std::atomic<bool>> draining_;
  v1::GenerateResponse message_;  // belongs to the one chunk in flight
  bool wrote_ = false;
  grpc::Alarm end_alarm_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_GENERATE_REACTOR_H_
