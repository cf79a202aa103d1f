// The server's side of one Score call.
#ifndef TRIPTYCH_SERVER_GRPC_SCORE_REACTOR_H_
#define TRIPTYCH_SERVER_GRPC_SCORE_REACTOR_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>

#include "server/core/requests/scores.h"
#include "server/grpc/call_reactor.h"
#include "triptych/v1/inference.pb.h"

namespace triptych::server {

// Gathers the call's chunks into one response.
class ScoreReactor final : public CallReactor<grpc::ServerUnaryReactor> {
 public:
  // `response` is gRPC's.
  ScoreReactor(grpc::CallbackServerContext& context, std::chrono::milliseconds stall_timeout,
               v1::ScoreResponse* response)
      : CallReactor(context, stall_timeout), response_(response) {}

 private:
  void Advance() override;

  v1::ScoreResponse* const response_;
  Scores scores_;  // belongs to the one chunk in flight, or to the end
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_SCORE_REACTOR_H_
