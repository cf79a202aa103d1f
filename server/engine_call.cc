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
  switch (status) {
    case SubmitStatus::kQueueFull:
      return QueueFull(context_);
    case SubmitStatus::kPromptTooLong:
      return InvalidArgument(
          prompt_field_, "is " + std::to_string(prompt_tokens_) +
                             " tokens with the begin token; the model's context is " +
                             std::to_string(model_.config.max_position_embeddings) + " positions");
    case SubmitStatus::kNeverFits:
      return InvalidArgument(prompt_field_, "and the tokens to generate need more than the " +
                                                std::to_string(model_.engine->pool_positions()) +
                                                " positions of the model's key/value cache");
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
