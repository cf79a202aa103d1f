#include "server/http/completions.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "engine/base/request_limits.h"

namespace triptych::server {
namespace {

constexpr int64_t kDefaultMaxTokens = 16;

// Adds a prompt: a string or token ids.
void AddPrompt(const std::string& name, const Json& prompt, Fields& fields,
               CompletionRequest& request) {
  if (prompt.is_string()) {
    request.prompts.push_back({.input = std::string_view(prompt.get_ref<const std::string&>())});
  } else if (prompt.is_array()) {
    request.AddPrompt(fields.TokenIds(name, prompt));
  } else {
    fields.Refuse(name, prompt, "a string or an array of token ids");
  }
}

// Reads one prompt or a list of prompts.
void ReadPrompts(Fields& fields, CompletionRequest& request) {
  const Json* prompt = fields.Any("prompt");
  if (prompt == nullptr) {
    request.prompts.emplace_back();  // the core refuses it
    return;
  }
  const bool several = prompt->is_array() && !prompt->empty() &&
                       (prompt->front().is_string() || prompt->front().is_array());
  if (!several) return AddPrompt("prompt", *prompt, fields, request);
  if (prompt->size() > limits::kMaxPrompts) {
    return fields.Fail(InvalidArgument("prompt", "has " + std::to_string(prompt->size()) +
                                                     " prompts; allowed: at most " +
                                                     std::to_string(limits::kMaxPrompts)));
  }
  for (const Json& one : *prompt) {
    const std::string name = "prompt[" + std::to_string(request.prompts.size()) + "]";
    AddPrompt(prompt->size() == 1 ? "prompt" : name, one, fields, request);
  }
}

// Choices of all prompts together are bounded.
void CheckChoices(Fields& fields, const CompletionRequest& request) {
  const auto prompts = static_cast<int64_t>(request.prompts.size());
  const int64_t n = request.choices();
  if (prompts <= 1 || n * prompts <= limits::kMaxRequestChoices) return;
  fields.Fail(InvalidArgument("n", "is " + std::to_string(n) + " for " + std::to_string(prompts) +
                                       " prompts; allowed: at most " +
                                       std::to_string(limits::kMaxRequestChoices) +
                                       " choices together"));
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

Result<CompletionRequest> ParseCompletion(const JsonBody& body, const TextDefaults& defaults) {
  CompletionRequest request;
  GenerateParams& params = request.params;
  Fields fields(body.json);
  ReadPrompts(fields, request);
  const TextOptions options = ReadTextOptions(fields, /*adds=*/true, defaults);
  const bool asks_parsing = fields.Bool("parse_special").value_or(false);
  for (Prompt& prompt : request.prompts) {
    prompt.options = options;
    if (std::holds_alternative<std::string_view>(prompt.input)) continue;
    prompt.options.parse_special_tokens = asks_parsing;  // which the core refuses for token ids
  }
  ReadCommon(fields, body.text, request);
  CheckChoices(fields, request);
  if (!params.max_new_tokens) params.max_new_tokens = kDefaultMaxTokens;
  params.logprobs = fields.Int32("logprobs");
  params.echo = fields.Bool("echo").value_or(false);
  fields.Lack("best_of", request.choices());
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

TextCompletion::TextCompletion(const AnswerStart& start, const CompletionRequest& request)
    : CompletionAnswer({.id_prefix = "cmpl-",
                        .object = "text_completion",
                        .chunk_object = "text_completion",
                        .no_logprobs = NoLogprobs(),
                        .bytes_per_logprob = 256},
                       start, request),
      show_special_(request.params.show_special) {
  for (const PromptTokens& prompt : start.prompts) {
    Place place;
    if (!request.params.prompt_logprobs) {
      place.tokens.Skip(*start.model.tokenizer, prompt.tokens);
    } else if (!prompt.begin_token) {
      place.first_token = prompt.tokens.front();
    }
    places_.insert(places_.end(), request.choices(), place);
  }
}

void TextCompletion::AddToken(const serving::TokenLogprobs& logprobs, bool known, Place& place,
                              Utf8Stream& text, JsonOutput& lists) const {
  const Tokenizer& tokenizer = *model().tokenizer;
  const int32_t token = logprobs.chosen.token;
  lists["tokens"].push_back(TokenText(token, tokenizer));
  lists["text_offset"].push_back(place.characters);
  std::string bytes = place.tokens.Push(tokenizer, token);
  if (bytes.empty() && show_special_ && &text == &place.generated) {
    bytes = tokenizer.SpecialText(token);
  }
  place.characters += CharactersIn(text.Push(bytes));
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
  if (const auto first = std::exchange(place.first_token, std::nullopt)) {
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
