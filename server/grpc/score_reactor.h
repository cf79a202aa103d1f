// The server's side of one Score call.
#ifndef TRIPTYCH_SERVER_GRPC_SCORE_REACTOR_H_
#define TRIPTYCH_SERVER_GRPC_SCORE_REACTOR_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <utility>

#include "server/core/generation.h"
#include "triptych/v1/inference.pb.h"

namespace triptych {

// Lives until both gRPC and the engine are done with it. Thread-safe.
class ScoreReactor final : public grpc::ServerUnaryReactor, public GenerationListener {
 public:
  // Starts the generation, which only scores; `response` is gRPC's.
  static ScoreReactor* Start(std::shared_ptr<Generation> generation,
                             grpc::CallbackServerContext& context, v1::ScoreResponse* response);

  void OnReady() override;

  void OnCancel() override { generation_->Cancel(); }
  void OnDone() override { self_.reset(); }

 private:
  ScoreReactor(std::shared_ptr<Generation> generation, grpc::CallbackServerContext& context,
               v1::ScoreResponse* response)
      : generation_(std::move(generation)), context_(context), response_(response) {}

  const std::shared_ptr<Generation> generation_;
  grpc::CallbackServerContext& context_;
  v1::ScoreResponse* const response_;
  std::shared_ptr<ScoreReactor> self_;  // until OnDone
};

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_GRPC_SCORE_REACTOR_H_
