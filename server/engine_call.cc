#include "server/engine_call.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "server/status.h"

namespace triptych {

EngineCall::EngineCall(ModelRegistry& registry, const HostedModel& model, const Request& request,
                       std::string prompt_field, grpc::CallbackServerContext& context)
    : registry_(registry),
      model_(model),
      request_id_(request.id),
      prompt_tokens_(std::ssize(request.prompt)),
      max_new_tokens_(request.max_new_tokens),
      prompt_field_(std::move(prompt_field)),
      context_(context) {}

void EngineCall::Submit(Request request, std::shared_ptr<RequestSink> sink) {
  registry_.loop().Post([engine = model_.engine.get(), request = std::move(request),
                         sink = std::move(sink)] { engine->Submit(request, sink); });
}

void EngineCall::Cancel() {
  registry_.loop().Post([engine = model_.engine.get(), id = request_id_] { engine->Cancel(id); });
}

grpc::Status EngineCall::Rejection(SubmitStatus status) const {
  const auto prompt_exceeds = [&](int64_t most, const std::string& why) {
    return InvalidArgument(prompt_field_, "is " + std::to_string(prompt_tokens_) +
                                              " tokens with the begin token; allowed: at most " +
                                              std::to_string(most) + ", " + why);
  };
  const int64_t context = model_.config.max_position_embeddings;
  const int64_t pool = model_.engine->pool_positions();
  switch (status) {
    case SubmitStatus::kQueueFull:
      return QueueFull(context_);
    case SubmitStatus::kPromptTooLong:
      return max_new_tokens_ > 0
                 ? prompt_exceeds(context - 1, "so that the model's context holds a new token too")
                 : prompt_exceeds(context, "the model's context");
    case SubmitStatus::kNeverFits:
      if (prompt_tokens_ > pool) return prompt_exceeds(pool, "the model's key/value cache");
      return InvalidArgument(  // the last new token takes no position
          "max_new_tokens", "is " + std::to_string(max_new_tokens_) + "; allowed: at most " +
                                std::to_string(pool - prompt_tokens_ + 1) +
                                ", as the model's key/value cache has " + std::to_string(pool) +
                                " positions and the prompt is " + std::to_string(prompt_tokens_) +
                                " tokens with the begin token");
    case SubmitStatus::kStopping:
      return ShuttingDown();
    case SubmitStatus::kAccepted:
      break;
  }
  return grpc::Status::OK;
}

std::optional<grpc::Status> EngineCall::Failure(const Completion& completion) const {
  switch (completion.reason) {
    case FinishReason::kCancelled:
      // Only the end of the server cancels what the client did not.
      return context_.IsCancelled() ? grpc::Status::CANCELLED : ShuttingDown();
    case FinishReason::kFailed:
      spdlog::error("request {} of {} failed: {}", request_id_, model_.name, completion.error);
      return grpc::Status(grpc::StatusCode::INTERNAL, completion.error);
    case FinishReason::kStop:
    case FinishReason::kLength:
      break;
  }
  return std::nullopt;
}

}  // namespace triptych
