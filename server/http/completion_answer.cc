#include "server/http/completion_answer.h"

#include <algorithm>
#include <utility>

#include "engine/text/text_stream.h"
#include "server/core/stats/request_summary.h"
#include "server/http/error_response.h"

namespace triptych::server {
namespace {

JsonOutput ReasonJson(const std::optional<serving::FinishReason>& reason, bool calls) {
  if (!reason) return nullptr;
  if (*reason != serving::FinishReason::kStop) return "length";
  return calls ? "tool_calls" : "stop";
}

}  // namespace

JsonOutput KvCacheUsageJson(const KvCacheUsage& usage) {
  return {{"positions", usage.positions},
          {"bytes_per_position", usage.bytes_per_position},
          {"used_bytes", usage.used_bytes},
          {"allocated_bytes", usage.allocated_bytes},
          {"peak_allocated_bytes", usage.peak_allocated_bytes},
          {"mha_used_bytes", usage.mha_used_bytes},
          {"shared_bytes", usage.shared_bytes},
          {"own_bytes", usage.own_bytes}};
}

JsonOutput UsageJson(const serving::RequestUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.generated_tokens},
          {"total_tokens", usage.prompt_tokens + usage.generated_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_prompt_tokens}}},
          {"kv_cache", KvCacheUsageJson(usage.kv_cache)}};
}

std::string TokenText(int32_t token, const Tokenizer& tokenizer) {
  const std::string bytes = tokenizer.Decode(token);
  if (bytes.empty()) return "token_id:" + std::to_string(token);
  if (ToValidUtf8(bytes) == bytes) return bytes;
  std::string text = "bytes:";
  for (const unsigned char byte : bytes) {
    const char* const digits = "0123456789abcdef";
    text += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
  }
  return text;
}

JsonOutput LogprobJson(float logprob) { return std::max(logprob, -9999.0F); }

CompletionAnswer::CompletionAnswer(Kind kind, const AnswerStart& start,
                                   const CompletionRequest& request)
    : kind_(std::move(kind)),
      model_(start.model),
      id_(kind_.id_prefix + start.request_id),
      logprobs_(request.params.logprobs.has_value()),
      include_usage_(request.include_usage),
      usage_in_chunks_(request.usage_in_chunks),
      choices_of_prompt_(request.choices()),
      choices_(start.prompts.size() * choices_of_prompt_) {
  for (const PromptTokens& prompt : start.prompts) {
    prompt_lengths_.push_back(std::ssize(prompt.tokens));
  }
  if (!logprobs_) return;
  for (Choice& choice : choices_) choice.logprobs = kind_.no_logprobs;
}

JsonOutput CompletionAnswer::Head(const std::string& object) const {
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_.name}};
}

JsonOutput CompletionAnswer::ChoiceJson(size_t index, const ChoiceText& text,
                                        const Choice& choice) {
  JsonOutput json = {{"index", index}};
  json.update(text.json);
  json["logprobs"] = choice.logprobs;
  json["finish_reason"] = ReasonJson(choice.reason, text.calls);
  return json;
}

CompletionAnswer::Choice CompletionAnswer::Read(const StreamChunk& chunk) {
  Choice news{.text = chunk.text,
              .logprobs = nullptr,
              .reason = std::nullopt,
              .tokens = std::ssize(chunk.tokens)};
  if (logprobs_) {
    news.logprobs = kind_.no_logprobs;
    AddLogprobs(chunk, news.logprobs);
  }
  if (chunk.completion) {
    news.reason = chunk.completion->reason;
    AddUsage(chunk.completion->usage, /*adds_prompt=*/chunk.choice % choices_of_prompt_ == 0,
             usage_);
  }
  return news;
}

void CompletionAnswer::Add(const StreamChunk& chunk) {
  Choice news = Read(chunk);
  Choice& choice = choices_[chunk.choice];
  choice.text += news.text;
  for (auto& [name, values] : news.logprobs.items()) {
    for (JsonOutput& value : values) choice.logprobs[name].push_back(std::move(value));
  }
  if (news.reason) choice.reason = news.reason;
}

std::string CompletionAnswer::Whole() const {
  JsonOutput answer = Head(kind_.object);
  JsonOutput& choices = answer["choices"] = JsonOutput::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    choices.push_back(ChoiceJson(i, WholeText(i, choices_[i].text), choices_[i]));
  }
  answer["usage"] = UsageJson(usage_);
  return ToText(answer);
}

std::string CompletionAnswer::Events(const StreamChunk& chunk) {
  const Choice news = Read(chunk);
  const ChoiceText text = ChunkText(chunk.choice, news.text, chunk.completion.has_value());
  if (text.empty && !logprobs_ && !news.reason && !usage_in_chunks_) return "";
  JsonOutput event = Head(kind_.chunk_object);
  event["choices"] = JsonOutput::array();
  event["choices"].push_back(ChoiceJson(chunk.choice, text, news));
  if (usage_in_chunks_) {
    int64_t& generated = choices_[chunk.choice].tokens;
    generated += news.tokens;
    const int64_t prompt = prompt_lengths_[chunk.choice / choices_of_prompt_];
    event["usage"] = {{"prompt_tokens", prompt},
                      {"completion_tokens", generated},
                      {"total_tokens", prompt + generated}};
  } else if (include_usage_) {
    event["usage"] = nullptr;
  }
  return ServerEvent("", ToText(event));
}

std::string CompletionAnswer::EndEvents() {
  std::string events;
  if (include_usage_) {
    JsonOutput event = Head(kind_.chunk_object);
    event["choices"] = JsonOutput::array();
    event["usage"] = UsageJson(usage_);
    events = ServerEvent("", ToText(event));
  }
  return events + ServerEvent("", "[DONE]");
}

std::string CompletionAnswer::ErrorEvents(const Error& error) {
  return ServerEvent("", ErrorBody(error));
}

size_t CompletionAnswer::BytesOf(const StreamChunk& chunk) const {
  size_t logprobs = 0;
  for (const auto* list : {&chunk.prompt_logprobs, &chunk.logprobs}) {
    for (const serving::TokenLogprobs& one : *list) logprobs += 1 + one.top.size();
  }
  return chunk.text.size() + logprobs * kind_.bytes_per_logprob;
}

}  // namespace triptych::server
