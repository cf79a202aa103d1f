#include "server/core/requests/context_length.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <iterator>

namespace triptych::server {

int64_t MostPositions(const ModelInfo& model) {
  return std::min(model.config.max_position_embeddings, model.info.pool_positions() + 1);
}

int64_t MostPromptTokens(const ModelInfo& model, bool generates) {
  return model.config.max_position_embeddings - (generates ? 1 : 0);
}

Error PromptTooLong(const std::string& field, const std::string& length, bool begin_token,
                    const ModelInfo& model, bool generates) {
  // Clients search for OpenAI's words, "this model's maximum context length is".
  return ContextLengthExceeded(
      field, fmt::format("is {} tokens{}; allowed: at most {}, as this model's maximum context "
                         "length is {} tokens{}{}",
                         length, begin_token ? " with the begin token" : "",
                         MostPromptTokens(model, generates), model.config.max_position_embeddings,
                         model.window_is_context ? " (its sliding window)" : "",
                         generates ? ", with a new token" : ""));
}

std::optional<Error> CheckSurelyFits(int64_t text_bytes, bool begin_token, const std::string& field,
                                     const ModelInfo& model, bool generates) {
  const int64_t token_bytes = model.tokenizer->max_token_bytes();
  const int64_t at_least = (begin_token ? 1 : 0) + (text_bytes + token_bytes - 1) / token_bytes;
  if (at_least <= MostPromptTokens(model, generates)) return std::nullopt;
  return PromptTooLong(field, fmt::format("at least {}", at_least), begin_token, model, generates);
}

RequestSize RequestSize::Of(const ValidRequest& valid) {
  return {.prompt_field = valid.prompt_field,
          .begin_token = valid.begin_token,
          .prompt_tokens = std::ssize(valid.request.prompt),
          .max_new_tokens = valid.request.max_new_tokens};
}

Error Rejection(serving::SubmitStatus status, const RequestSize& size, const ModelInfo& model) {
  const int64_t pool = model.info.pool_positions();
  const std::string with_begin = size.begin_token ? " with the begin token" : "";
  switch (status) {
    case serving::SubmitStatus::kQueueFull:
      return QueueFull();
    case serving::SubmitStatus::kQueueTimeout:
      return QueueTimeout();
    case serving::SubmitStatus::kPromptTooLong:
      return PromptTooLong(size.prompt_field, std::to_string(size.prompt_tokens), size.begin_token,
                           model, size.max_new_tokens > 0);
    case serving::SubmitStatus::kNeverFits:
      return ContextLengthExceeded(
          size.prompt_field,
          fmt::format("is {0} tokens{1}; allowed: at most {2}, as this model's maximum context "
                      "length is {2} tokens (its key/value cache)",
                      size.prompt_tokens, with_begin, pool));
    case serving::SubmitStatus::kStopping:
      return Draining();
    case serving::SubmitStatus::kAccepted:
      break;
  }
  return Internal("the request was refused without a reason");
}

}  // namespace triptych::server
