#include "server/grpc/score_reactor.h"

#include <utility>
#include <variant>

#include "server/grpc/load_report.h"
#include "server/grpc/status.h"
#include "server/grpc/wire.h"

namespace triptych {

ScoreReactor* ScoreReactor::Start(std::shared_ptr<Scoring> scoring,
                                  grpc::CallbackServerContext& context, v1::ScoreResponse* response,
                                  std::chrono::milliseconds stall_timeout) {
  std::shared_ptr<ScoreReactor> reactor(
      new ScoreReactor(std::move(scoring), context, response, stall_timeout));
  reactor->self_ = reactor;
  reactor->scoring_->Start(reactor);
  return reactor.get();
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

}  // namespace triptych
