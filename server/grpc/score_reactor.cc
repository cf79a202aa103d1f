#include "server/grpc/score_reactor.h"

#include <utility>
#include <variant>

#include "server/grpc/load_report.h"
#include "server/grpc/wire.h"

namespace triptych::server {

ScoreReactor* ScoreReactor::Make(grpc::CallbackServerContext& context, v1::ScoreResponse* response,
                                 std::chrono::milliseconds stall_timeout) {
  std::shared_ptr<ScoreReactor> reactor(new ScoreReactor(context, response, stall_timeout));
  reactor->self_ = reactor;
  return reactor.get();
}

void ScoreReactor::Begin(std::shared_ptr<Scoring> scoring) {
  const std::shared_ptr<ScoreReactor> self = self_;  // the call may end meanwhile
  scoring_ = std::move(scoring);
  scoring_->Start(self);  // nothing after it may throw: what throws is refused
  if (begun_or_cancelled_.exchange(true)) scoring_->Cancel();
}

void ScoreReactor::OnReady() {
  Scoring::Event event = scoring_->Take();
  if (std::holds_alternative<RequestAccepted>(event)) {
    context_.AddInitialMetadata(kRequestIdMetadata, scoring_->id());
    StartSendInitialMetadata();
    event = scoring_->Take();
  }
  if (const auto* end = std::get_if<Result<Scoring::Scores>>(&event)) {
    if (end->ok()) *response_ = ToProto(end->value());
    if (const auto load = scoring_->load()) AddLoadReport(*load, context_);
    stall_alarm_->Begin();
    Finish(end->ok() ? grpc::Status::OK : ToStatus(end->error(), context_));
  }
}

}  // namespace triptych::server
