// The server's side of one Score call.
#ifndef TRIPTYCH_SERVER_GRPC_SCORE_REACTOR_H_
#define TRIPTYCH_SERVER_GRPC_SCORE_REACTOR_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include "server/core/requests/scoring.h"
#include "server/grpc/stall_alarm.h"
#include "server/grpc/status.h"
#include "triptych/v1/inference.pb.h"

namespace triptych::server {

// Lives until both gRPC and the engine are done with it. Thread-safe, but that it begins or is
// refused once.
class ScoreReactor final : public grpc::ServerUnaryReactor, public GenerationListener {
 public:
  // Of a call that waits to begin; `response` is gRPC's. A client that does not take it for longer
  // than `stall_timeout` loses it.
  static ScoreReactor* Make(grpc::CallbackServerContext& context, v1::ScoreResponse* response,
                            std::chrono::milliseconds stall_timeout);

  // Either: starts the scoring, or ends the call.
  void Begin(std::shared_ptr<Scoring> scoring);
  void Refuse(const Error& error) { Finish(ToStatus(error, context_)); }

  void OnReady() override;

  void OnCancel() override {
    if (begun_or_cancelled_.exchange(true)) scoring_->Cancel();
  }
  void OnDone() override {
    stall_alarm_->Stop();
    self_.reset();
  }

 private:
  ScoreReactor(grpc::CallbackServerContext& context, v1::ScoreResponse* response,
               std::chrono::milliseconds stall_timeout)
      : context_(context),
        response_(response),
        stall_alarm_(std::make_shared<StallAlarm>(context, stall_timeout)) {}

  std::shared_ptr<Scoring> scoring_;  // once it begins
  // Whichever of the two comes second cancels the scoring, which has been started then.
  std::atomic<bool> begun_or_cancelled_ = false;
  grpc::CallbackServerContext& context_;
  v1::ScoreResponse* const response_;
  const std::shared_ptr<StallAlarm> stall_alarm_;
  std::shared_ptr<ScoreReactor> self_;  // until OnDone
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_SCORE_REACTOR_H_
