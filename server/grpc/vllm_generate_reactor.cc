#include "server/grpc/vllm_generate_reactor.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace triptych::server {
namespace {

// Routers take messages of 4 MiB, gRPC's default. This leaves room for all but the tokens.
constexpr int64_t kMaxAnswerBytes = (int64_t{4} << 20) - (int64_t{128} << 10);
constexpr int64_t kTokenIdBytes = 5;
// Bound on a token's log-probabilities, with those of `top` most likely tokens.
constexpr int64_t LogprobBytes(int64_t top) { return 21 + 9 * top; }

Error AnswerTooLarge() {
  return {.code = ErrorCode::kResourceExhausted,
          .description = fmt::format("a choice takes more than {} bytes in one message; allowed: "
                                     "\"stream\", or fewer tokens or log-probabilities",
                                     kMaxAnswerBytes),
          .reason = "ANSWER_TOO_LARGE"};
}

}  // namespace

VllmGenerateReactor::VllmGenerateReactor(grpc::CallbackServerContext& context,
                                         std::chrono::milliseconds stall_timeout,
                                         std::shared_ptr<const std::atomic<bool>> draining,
                                         const vllm_wire::GenerateRequest& message,
                                         std::function<void()> on_done)
    : StreamReactor(context, stall_timeout, std::move(draining)),
      streams_(message.stream()),
      top_(message.sampling_params().logprobs() > 0),
      prompt_top_(message.sampling_params().prompt_logprobs() > 0),
      token_bytes_(message.sampling_params().has_logprobs()
                       ? LogprobBytes(message.sampling_params().logprobs())
                       : kTokenIdBytes),
      prompt_token_bytes_(LogprobBytes(message.sampling_params().prompt_logprobs())),
      stop_token_ids_(message.sampling_params().stop_token_ids().begin(),
                      message.sampling_params().stop_token_ids().end()),
      on_done_(std::move(on_done)) {
  if (message.sampling_params().has_prompt_logprobs()) prompt_.emplace();
}

void VllmGenerateReactor::Begin(Result<std::shared_ptr<Call>> call) {
  if (!call.ok()) return CallReactor::Begin(InVllmTerms(call.error()));
  const std::vector<int32_t> prompt = std::move(call.value()->prompts().front().tokens);
  prompt_tokens_ = static_cast<uint32_t>(prompt.size());
  const int64_t prompt_bytes = prompt_ ? prompt_tokens_ * prompt_token_bytes_ : 0;
  if (prompt_bytes > kMaxAnswerBytes) {
    return CallReactor::Begin(InvalidArgument(
        "sampling_params.prompt_logprobs",
        fmt::format("are those of {} tokens; allowed: at most {}, which one message holds",
                    prompt_tokens_, kMaxAnswerBytes / prompt_token_bytes_)));
  }
  if (prompt_) {
    prompt_.emplace();
    // The first token has no log-probability.
    prompt_->add_token_logprobs();
    prompt_->add_token_ids(prompt.front());
    if (prompt_top_) prompt_->add_top_logprobs();
  }
  choices_.resize(call.value()->sequences());
  choices_.front().bytes = prompt_bytes;
  for (size_t i = 0; i < choices_.size(); ++i) {
    vllm_wire::GenerateComplete& complete = choices_[i].complete;
    complete.set_index(static_cast<uint32_t>(i));
    complete.set_prompt_tokens(prompt_tokens_);
  }
  CallReactor::Begin(std::move(call));
}

void VllmGenerateReactor::OnDone() {
  on_done_();
  StreamReactor::OnDone();
}

void VllmGenerateReactor::AddChunk(const StreamChunk& chunk, Messages& messages) {
  if (too_large_) return;
  Choice& choice = choices_[chunk.choice];
  choice.bytes += std::ssize(chunk.tokens) * token_bytes_;
  if (!streams_ && choice.bytes > kMaxAnswerBytes) {
    too_large_ = true;
    choices_.clear();
    return call().Cancel();
  }
  vllm_wire::GenerateComplete& complete = choice.complete;
  if (prompt_) AddLogprobs(chunk.prompt_logprobs, prompt_top_, *prompt_);
  // The prompt's log-probabilities are complete with the first token, or the end.
  const bool ends_prompt =
      prompt_ && chunk.choice == 0 && (!chunk.tokens.empty() || chunk.completion);
  complete.set_completion_tokens(complete.completion_tokens() +
                                 static_cast<uint32_t>(chunk.tokens.size()));
  if (streams_ && (!chunk.tokens.empty() || ends_prompt)) {
    vllm_wire::GenerateStreamChunk& out = *messages.emplace_back().mutable_chunk();
    out.set_index(chunk.choice);
    out.set_prompt_tokens(prompt_tokens_);
    out.set_completion_tokens(static_cast<uint32_t>(chunk.tokens.size()));
    out.mutable_token_ids()->Add(chunk.tokens.begin(), chunk.tokens.end());
    if (!chunk.logprobs.empty()) AddLogprobs(chunk.logprobs, top_, *out.mutable_output_logprobs());
    if (ends_prompt) *out.mutable_input_logprobs() = *std::exchange(prompt_, std::nullopt);
  } else if (!streams_) {
    complete.mutable_output_ids()->Add(chunk.tokens.begin(), chunk.tokens.end());
    if (!chunk.logprobs.empty()) {
      AddLogprobs(chunk.logprobs, top_, *complete.mutable_output_logprobs());
    }
    if (ends_prompt) *complete.mutable_input_logprobs() = *std::exchange(prompt_, std::nullopt);
  }
  if (!chunk.tokens.empty()) choice.last_token = static_cast<uint32_t>(chunk.tokens.back());
  if (!chunk.completion) return;
  const serving::Completion& completion = *chunk.completion;
  complete.set_cached_tokens(static_cast<uint32_t>(completion.usage.cached_prompt_tokens));
  complete.set_finish_reason(completion.reason == serving::FinishReason::kStop ? "stop" : "length");
  if (completion.stop) {
    complete.set_matched_stop_str(*completion.stop);
  } else if (completion.reason == serving::FinishReason::kStop &&
             std::find(stop_token_ids_.begin(), stop_token_ids_.end(), choice.last_token) !=
                 stop_token_ids_.end()) {
    complete.set_matched_token_id(choice.last_token);
  }
  AddComplete(choice, messages);
}

std::optional<Error> VllmGenerateReactor::AddEnd(std::optional<Error> error, Messages& messages) {
  if (too_large_) return AnswerTooLarge();
  if (!error) return error;
  if (!aborted_ || error->code != ErrorCode::kCancelled) return InVllmTerms(*std::move(error));
  for (Choice& choice : choices_) {
    if (choice.done) continue;
    choice.complete.set_finish_reason("abort");
    AddComplete(choice, messages);
  }
  return std::nullopt;
}

void VllmGenerateReactor::AddComplete(Choice& choice, Messages& messages) {
  choice.done = true;
  *messages.emplace_back().mutable_complete() = std::move(choice.complete);
}

}  // namespace triptych::server
