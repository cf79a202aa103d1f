// The server's side of one Score call.
#ifndef TRIPTYCH_SERVER_SCORE_REACTOR_H_
#define TRIPTYCH_SERVER_SCORE_REACTOR_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string>

#include "engine/serving/request.h"
#include "server/engine_call.h"
#include "server/model_registry.h"
#include "triptych/v1/inference.pb.h"

namespace triptych {

// Lives until both gRPC and the engine are done with it. Thread-safe.
class ScoreReactor final : public grpc::ServerUnaryReactor, public RequestSink {
 public:
  // Submits the request; `response` is gRPC's.
  static ScoreReactor* Start(ModelRegistry& registry, const HostedModel& model, Request request,
                             std::string prompt_field, grpc::CallbackServerContext& context,
                             v1::ScoreResponse* response);

  void OnRejected(SubmitStatus status) override;
  void OnDelta(Delta) override {}
  void OnFinish(triptych::Completion completion) override;

  void OnCancel() override { call_.Cancel(); }
  void OnDone() override { self_.reset(); }

 private:
  ScoreReactor(ModelRegistry& registry, const HostedModel& model, const Request& request,
               std::string prompt_field, grpc::CallbackServerContext& context,
               v1::ScoreResponse* response);

  EngineCall call_;
  v1::ScoreResponse* const response_;
  std::shared_ptr<ScoreReactor> self_;  // until OnDone
};

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_SCORE_REACTOR_H_
