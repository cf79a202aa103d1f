// The server's side of one Score call.
#ifndef TRIPTYCH_SERVER_GRPC_SCORE_REACTOR_H_
#define TRIPTYCH_SERVER_GRPC_SCORE_REACTOR_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <memory>
#include <utility>

#include "server/core/scoring.h"
#include "server/grpc/stall_alarm.h"
#include "triptych/v1/inference.pb.h"

namespace triptych {

// Lives until both gRPC and the engine are done with it. Thread-safe.
class ScoreReactor final : public grpc::ServerUnaryReactor, public GenerationListener {
 public:
  // Starts the scoring; `response` is gRPC's. A client that does not take it
  // for longer than `stall_timeout` loses it.
  static ScoreReactor* Start(std::shared_ptr<Scoring> scoring, grpc::CallbackServerContext& context,
                             v1::ScoreResponse* response, std::chrono::milliseconds stall_timeout);

  void OnReady() override;

  void OnCancel() override { scoring_->Cancel(); }
  void OnDone() override {
    stall_alarm_->Stop();
    self_.reset();
  }

 private:
  ScoreReactor(std::shared_ptr<Scoring> scoring, grpc::CallbackServerContext& context,
               v1::ScoreResponse* response, std::chrono::milliseconds stall_timeout)
      : scoring_(std::move(scoring)),
        context_(context),
        response_(response),
        stall_alarm_(std::make_shared<StallAlarm>(context, stall_timeout)) {}

  const std::shared_ptr<Scoring> scoring_;
  grpc::CallbackServerContext& context_;
  v1::ScoreResponse* const response_;
  const std::shared_ptr<StallAlarm> stall_alarm_;
  std::shared_ptr<ScoreReactor> self_;  // until OnDone
};

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_GRPC_SCORE_REACTOR_H_
