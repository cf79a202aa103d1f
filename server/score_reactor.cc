#include "server/score_reactor.h"

#include <numeric>
#include <utility>

#include "server/wire.h"

namespace triptych {

ScoreReactor::ScoreReactor(ModelRegistry& registry, const HostedModel& model,
                           const Request& request, std::string prompt_field,
                           grpc::CallbackServerContext& context, v1::ScoreResponse* response)
    : call_(registry, model, request, std::move(prompt_field), context), response_(response) {}

ScoreReactor* ScoreReactor::Start(ModelRegistry& registry, const HostedModel& model,
                                  Request request, std::string prompt_field,
                                  grpc::CallbackServerContext& context,
                                  v1::ScoreResponse* response) {
  std::shared_ptr<ScoreReactor> reactor(
      new ScoreReactor(registry, model, request, std::move(prompt_field), context, response));
  reactor->self_ = reactor;
  reactor->call_.Submit(std::move(request), reactor);
  return reactor.get();
}

void ScoreReactor::OnRejected(SubmitStatus status) { Finish(call_.Rejection(status)); }

void ScoreReactor::OnFinish(triptych::Completion completion) {
  if (const auto failure = call_.Failure(completion)) {
    Finish(*failure);
    return;
  }
  const std::vector<float>& logprobs = completion.prompt_logprobs;
  response_->set_log_likelihood(std::accumulate(logprobs.begin(), logprobs.end(), 0.0));
  response_->set_scored_tokens(static_cast<int32_t>(logprobs.size()));
  response_->mutable_token_logprobs()->Add(logprobs.begin(), logprobs.end());
  *response_->mutable_usage() = ToProto(completion.usage);
  Finish(grpc::Status::OK);
}

}  // namespace triptych
