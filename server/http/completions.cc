#include "server/http/completions.h"

#include <algorithm>
#include <utility>

namespace triptych::server {
namespace {

constexpr int64_t kDefaultMaxTokens = 16;

// Reads a string, an array of one string, token ids, or an array of one array of token ids.
void ReadPrompt(Fields& fields, CompletionRequest& request) {
  const Json* prompt = fields.Any("prompt");
  if (prompt == nullptr) return;
  if (prompt->is_array() && !prompt->empty() &&
      (prompt->front().is_string() || prompt->front().is_array())) {
    if (prompt->size() > 1) {
      return fields.Fail(InvalidArgument("prompt", "has " + std::to_string(prompt->size()) +
                                                       " prompts; allowed: one per request"));
    }
    prompt = &prompt->front();
  }
  if (prompt->is_string()) {
    request.params.prompt.input = std::string_view(prompt->get_ref<const std::string&>());
  } else if (prompt->is_array()) {
    request.prompt_tokens = fields.TokenIds("prompt", *prompt);
    request.params.prompt.input = std::span<const int32_t>(request.prompt_tokens);
  } else {
    fields.Refuse("prompt", *prompt, "a string or an array of token ids");
  }
}

// Number of code points of valid UTF-8.
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

}  // namespace

Result<CompletionRequest> ParseCompletion(const Json& body) {
  CompletionRequest request;
  GenerateParams& params = request.params;
  Fields fields(body);
  ReadPrompt(fields, request);
  params.prompt.options = ReadTextOptions(fields, /*adds=*/true);
  ReadCommon(fields, request);
  if (!params.max_new_tokens) params.max_new_tokens = kDefaultMaxTokens;
  params.logprobs = fields.Int32("logprobs");
  params.echo = fields.Bool("echo").value_or(false);
  fields.Lack("best_of", params.n.value_or(1));
  fields.Lack("suffix");
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

TextCompletion::TextCompletion(const ModelInfo& model, const std::string& request_id,
                               const CompletionRequest& request)
    : CompletionAnswer({.id_prefix = "cmpl-",
                        .object = "text_completion",
                        .chunk_object = "text_completion",
                        .no_logprobs = NoLogprobs(),
                        .bytes_per_logprob = 256},
                       model, request_id, request),
      places_(request.params.n.value_or(1)) {
  if (!request.params.prompt_logprobs) {
    for (Place& place : places_) place.tokens.Skip(*model.tokenizer, request.prompt_tokens);
  } else if (!request.begin_token) {
    first_token_ = request.prompt_tokens.front();
  }
}

void TextCompletion::AddToken(const serving::TokenLogprobs& logprobs, bool known, Place& place,
                              Utf8Stream& text, JsonOutput& lists) const {
  const Tokenizer& tokenizer = *model().tokenizer;
  const int32_t token = logprobs.chosen.token;
  lists["tokens"].push_back(TokenText(token, tokenizer));
  lists["text_offset"].push_back(place.characters);
  place.characters += CharactersIn(text.Push(place.tokens.Push(tokenizer, token)));
  if (!known) {
    lists["token_logprobs"].push_back(nullptr);
    lists["top_logprobs"].push_back(nullptr);
    return;
  }
  lists["token_logprobs"].push_back(LogprobJson(logprobs.chosen.logprob));
  JsonOutput top = JsonOutput::object();
  // emplace keeps the first, likeliest, of tokens with the same text.
  for (const serving::TokenLogprob& one : logprobs.top) {
    top.emplace(TokenText(one.token, tokenizer), LogprobJson(one.logprob));
  }
  top.emplace(TokenText(token, tokenizer), LogprobJson(logprobs.chosen.logprob));
  lists["top_logprobs"].push_back(std::move(top));
}

void TextCompletion::AddLogprobs(const StreamChunk& chunk, JsonOutput& lists) {
  Place& place = places_[chunk.choice];
  if (const auto first = std::exchange(first_token_, std::nullopt)) {
    AddToken({.chosen = {.token = *first}, .top = {}}, /*known=*/false, place, place.prompt, lists);
  }
  for (const serving::TokenLogprobs& one : chunk.prompt_logprobs) {
    AddToken(one, /*known=*/true, place, place.prompt, lists);
  }
  if (!chunk.logprobs.empty()) place.characters += CharactersIn(place.prompt.Flush());
  for (const serving::TokenLogprobs& one : chunk.logprobs) {
    AddToken(one, /*known=*/true, place, place.generated, lists);
  }
}

}  // namespace triptych::server
