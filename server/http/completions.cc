#include "server/http/completions.h"

#include <algorithm>
#include <utility>

#include "engine/base/parse.h"
#include "engine/base/quoted.h"
#include "engine/base/request_limits.h"
#include "engine/text/text_stream.h"
#include "server/core/request_summary.h"

namespace triptych {
namespace {

constexpr int64_t kDefaultMaxTokens = 16;

// A string, an array of one string, token ids, or an array of one array of them.
void ReadPrompt(Fields& fields, CompletionRequest& request) {
  const Json* prompt = fields.Any("prompt");
  if (prompt == nullptr) return;
  if (prompt->is_array() && !prompt->empty() &&
      (prompt->front().is_string() || prompt->front().is_array())) {
    if (prompt->size() > 1) {
      return fields.Fail(InvalidArgument(
          "prompt", "holds " + std::to_string(prompt->size()) +
                        " prompts; allowed: one, and a request for each of the others"));
    }
    prompt = &prompt->front();
  }
  if (prompt->is_string()) {
    request.params.prompt = std::string_view(prompt->get_ref<const std::string&>());
  } else if (prompt->is_array()) {
    request.prompt_tokens = fields.TokenIds("prompt", *prompt);
    request.params.prompt = std::span<const int32_t>(request.prompt_tokens);
  } else {
    fields.Refuse("prompt", *prompt, "a string or an array of token ids");
  }
}

void ReadLength(Fields& fields, CompletionRequest& request) {
  const auto max_tokens = fields.Integer("max_tokens");
  const auto max_completion_tokens = fields.Integer("max_completion_tokens");
  if (max_tokens && max_completion_tokens) {
    fields.Fail(
        InvalidArgument("max_completion_tokens", "is set beside max_tokens; allowed: one of them"));
  }
  if (max_completion_tokens) request.length_field = "max_completion_tokens";
  request.params.max_new_tokens =
      max_tokens ? max_tokens : max_completion_tokens.value_or(kDefaultMaxTokens);
}

// Of lists that are too long one entry beyond the most is enough for the core to refuse them.
void ReadStop(Fields& fields, GenerateParams& params) {
  const Json* stop = fields.Any("stop");
  if (stop == nullptr) return;
  if (stop->is_string()) {
    params.stop = {stop->get<std::string>()};
    return;
  }
  if (!stop->is_array()) return fields.Refuse("stop", *stop, "a string or an array of strings");
  for (const Json& entry : *stop) {
    if (params.stop.size() > limits::kMaxStops) return;
    if (!entry.is_string()) {
      return fields.Refuse("stop[" + std::to_string(params.stop.size()) + "]", entry, "a string");
    }
    params.stop.push_back(entry.get<std::string>());
  }
}

void ReadLogitBias(Fields& fields, SamplingFields& sampling) {
  const Json* biases = fields.Any("logit_bias");
  if (biases == nullptr) return;
  if (!biases->is_object()) {
    return fields.Refuse("logit_bias", *biases, "an object of token ids and numbers");
  }
  Fields entries(*biases, "logit_bias.");
  for (const auto& [name, value] : biases->items()) {
    if (sampling.logit_bias.size() > limits::kMaxLogitBiases) return;
    const auto token = ParseNumber<int32_t>(name, 0, limits::kInt32Max);
    const std::string path = "logit_bias[" + Printable(name) + "]";
    if (!token) return fields.Fail(InvalidArgument(path, "names no token; allowed: token ids"));
    const auto bias = entries.Number(name);
    if (!bias) return fields.Refuse(path, value, "a number");
    // "7" and "07" name the same token.
    const auto same = [&](const auto& entry) { return entry.first == *token; };
    if (std::any_of(sampling.logit_bias.begin(), sampling.logit_bias.end(), same)) {
      return fields.Fail(InvalidArgument(path, "is named twice; allowed: once"));
    }
    sampling.logit_bias.emplace_back(*token, *bias);
  }
}

void ReadStream(Fields& fields, CompletionRequest& request) {
  request.stream = fields.Bool("stream").value_or(false);
  const Json* options = fields.Any("stream_options");
  if (options == nullptr) return;
  if (!request.stream) {
    return fields.Fail(InvalidArgument("stream_options", "is set; allowed: with stream alone"));
  }
  if (!options->is_object()) return fields.Refuse("stream_options", *options, "an object");
  Fields entries(*options, "stream_options.");
  request.include_usage = entries.Bool("include_usage").value_or(false);
  entries.Ignore({"include_obfuscation"});
  if (const auto error = entries.Finish()) fields.Fail(*error);
}

// A token by its text; by a name if its bytes are not text by themselves, or it has none.
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

// Code points of valid UTF-8.
int64_t CharactersIn(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; });
}

JsonOutput NoLogprobs() {
  return {{"tokens", JsonOutput::array()},
          {"token_logprobs", JsonOutput::array()},
          {"top_logprobs", JsonOutput::array()},
          {"text_offset", JsonOutput::array()}};
}

JsonOutput ReasonJson(const std::optional<FinishReason>& reason) {
  if (!reason) return nullptr;
  return *reason == FinishReason::kStop ? "stop" : "length";
}

// The log-probability of what cannot be is no number of JSON.
JsonOutput LogprobJson(float logprob) { return std::max(logprob, -9999.0F); }

}  // namespace

Result<CompletionRequest> ParseCompletion(const Json& body) {
  CompletionRequest request;
  GenerateParams& params = request.params;
  Fields fields(body);
  params.model = fields.String("model").value_or("");
  ReadPrompt(fields, request);
  ReadLength(fields, request);
  params.sampling.temperature = fields.Number("temperature");
  params.sampling.top_p = fields.Number("top_p");
  params.sampling.presence_penalty = fields.Number("presence_penalty");
  params.sampling.frequency_penalty = fields.Number("frequency_penalty");
  if (const auto seed = fields.Integer("seed")) {
    params.sampling.seed = static_cast<uint64_t>(*seed);
  }
  ReadLogitBias(fields, params.sampling);
  ReadStop(fields, params);
  params.n = fields.Int32("n");
  params.logprobs = fields.Int32("logprobs");
  params.echo = fields.Bool("echo").value_or(false);
  ReadStream(fields, request);
  fields.Lack("best_of", params.n.value_or(1));
  fields.Lack("suffix");
  fields.Ignore({"user", "store", "metadata", "service_tier", "safety_identifier",
                 "prompt_cache_key", "prompt_cache_retention"});
  if (params.echo && params.logprobs) {
    if (params.n.value_or(1) != 1) {
      fields.Fail(InvalidArgument(
          "n", "is " + std::to_string(*params.n) + "; allowed: 1 with echo and logprobs"));
    }
    params.prompt_logprobs = params.logprobs;
  }
  if (const auto error = fields.Finish()) return *error;
  return request;
}

Error InCompletionTerms(Error error, const CompletionRequest& request) {
  constexpr std::string_view kSampling = "sampling.";
  constexpr std::string_view kTokens = "tokens.ids";
  std::string& field = error.field;
  if (field.starts_with(kSampling)) {
    field.erase(0, kSampling.size());
  } else if (field.starts_with(kTokens)) {
    field.replace(0, kTokens.size(), "prompt");
  } else if (field == "text" || field == "tokens") {
    field = "prompt";
  } else if (field == "max_new_tokens") {
    field = request.length_field;
  } else if (field == "prompt_logprobs") {
    field = "logprobs";
  }
  return error;
}

JsonOutput KvCacheUsageJson(const KvCacheUsage& usage) {
  return {{"positions", usage.positions},
          {"bytes_per_position", usage.bytes_per_position},
          {"used_bytes", usage.used_bytes},
          {"reserved_bytes", usage.reserved_bytes},
          {"peak_reserved_bytes", usage.peak_reserved_bytes},
          {"mha_used_bytes", usage.mha_used_bytes},
          {"shared_bytes", usage.shared_bytes},
          {"own_bytes", usage.own_bytes}};
}

JsonOutput UsageJson(const RequestUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.generated_tokens},
          {"total_tokens", usage.prompt_tokens + usage.generated_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_prompt_tokens}}},
          {"kv_cache", KvCacheUsageJson(usage.kv_cache)}};
}

CompletionAnswer::CompletionAnswer(const ServedModel& model, const std::string& request_id,
                                   const CompletionRequest& request)
    : model_(model),
      id_("cmpl-" + request_id),
      logprobs_(request.params.logprobs.has_value()),
      include_usage_(request.include_usage),
      choices_(request.params.n.value_or(1)) {
  if (request.params.prompt_logprobs && !request.prompt_tokens.empty()) {
    first_token_ = request.prompt_tokens.front();
  }
  if (!logprobs_) return;
  for (Choice& choice : choices_) choice.logprobs = NoLogprobs();
}

JsonOutput CompletionAnswer::Head() const {
  return {
      {"id", id_}, {"object", "text_completion"}, {"created", created_}, {"model", model_.name}};
}

void CompletionAnswer::AddToken(const TokenLogprobs& logprobs, bool known, Choice& choice,
                                Utf8Stream& text, JsonOutput& list) const {
  const Tokenizer& tokenizer = *model_.tokenizer;
  const int32_t token = logprobs.chosen.token;
  list["tokens"].push_back(TokenText(token, tokenizer));
  list["text_offset"].push_back(choice.characters);
  choice.characters += CharactersIn(text.Push(tokenizer.Decode(token)));
  if (!known) {
    list["token_logprobs"].push_back(nullptr);
    list["top_logprobs"].push_back(nullptr);
    return;
  }
  list["token_logprobs"].push_back(LogprobJson(logprobs.chosen.logprob));
  JsonOutput top = JsonOutput::object();
  // Of tokens with one name the likeliest, which comes first, stays.
  for (const TokenLogprob& one : logprobs.top) {
    top.emplace(TokenText(one.token, tokenizer), LogprobJson(one.logprob));
  }
  top.emplace(TokenText(token, tokenizer), LogprobJson(logprobs.chosen.logprob));
  list["top_logprobs"].push_back(std::move(top));
}

CompletionAnswer::Choice CompletionAnswer::Read(const StreamChunk& chunk) {
  Choice& choice = choices_[chunk.choice];
  Choice news;
  news.text = chunk.text;
  if (logprobs_) {
    news.logprobs = NoLogprobs();
    if (const auto first = std::exchange(first_token_, std::nullopt)) {
      AddToken({.chosen = {.token = *first}, .top = {}}, /*known=*/false, choice, choice.prompt,
               news.logprobs);
    }
    for (const TokenLogprobs& one : chunk.prompt_logprobs) {
      AddToken(one, /*known=*/true, choice, choice.prompt, news.logprobs);
    }
    if (!chunk.logprobs.empty()) choice.characters += CharactersIn(choice.prompt.Flush());
    for (const TokenLogprobs& one : chunk.logprobs) {
      AddToken(one, /*known=*/true, choice, choice.generated, news.logprobs);
    }
  }
  if (chunk.completion) {
    news.reason = chunk.completion->reason;
    AddUsage(chunk.completion->usage, /*shares_prompt=*/true, usage_);
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
  JsonOutput answer = Head();
  JsonOutput& choices = answer["choices"] = JsonOutput::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    choices.push_back({{"index", i},
                       {"text", choices_[i].text},
                       {"logprobs", choices_[i].logprobs},
                       {"finish_reason", ReasonJson(choices_[i].reason)}});
  }
  answer["usage"] = UsageJson(usage_);
  return ToText(answer);
}

std::string CompletionAnswer::Chunk(const StreamChunk& chunk) {
  const Choice news = Read(chunk);
  JsonOutput event = Head();
  event["choices"] = JsonOutput::array();
  event["choices"].push_back({{"index", chunk.choice},
                              {"text", news.text},
                              {"logprobs", news.logprobs},
                              {"finish_reason", ReasonJson(news.reason)}});
  if (include_usage_) event["usage"] = nullptr;
  return ToText(event);
}

std::string CompletionAnswer::UsageChunk() const {
  JsonOutput event = Head();
  event["choices"] = JsonOutput::array();
  event["usage"] = UsageJson(usage_);
  return ToText(event);
}

size_t BytesOf(const StreamChunk& chunk) {
  constexpr size_t kBytesPerLogprob = 256;  // as JSON values in memory
  size_t logprobs = 0;
  for (const auto* list : {&chunk.prompt_logprobs, &chunk.logprobs}) {
    for (const TokenLogprobs& one : *list) logprobs += 1 + one.top.size();
  }
  return chunk.text.size() + logprobs * kBytesPerLogprob;
}

}  // namespace triptych
