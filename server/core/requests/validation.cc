#include "server/core/requests/validation.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <random>
#include <set>
#include <string_view>
#include <utility>

#include "engine/base/request_limits.h"
#include "engine/text/text_stream.h"
#include "server/core/requests/context_length.h"
#include "server/core/requests/field_checks.h"
#include "server/core/requests/sampling_fields.h"
#include "server/core/tools/call_grammar.h"

namespace triptych::server {
namespace {

constexpr size_t kDefaultPageSize = 100;
constexpr std::chrono::milliseconds kDefaultInterval{1000};

// The begin token that is put before a text, if one is. `path` is where the options are,
// "inputs[1]." or nothing.
Result<std::optional<int32_t>> BeginToken(const TextOptions& options, const std::string& path,
                                          const Tokenizer& tokenizer) {
  if (!options.begin_token.value_or(true)) return std::optional<int32_t>();
  const std::optional<int32_t> begin = tokenizer.begin_token();
  if (options.begin_token && !begin) {
    return InvalidArgument(path + "begin_token",
                           "is true, but the model's tokenizer puts no token before texts; "
                           "allowed: false");
  }
  return begin;
}

// `field` is where the text is.
Result<std::vector<int32_t>> EncodeText(std::string_view text, const TextOptions& options,
                                        std::optional<int32_t> begin, const std::string& field,
                                        const Tokenizer& tokenizer) {
  const SpecialTokens special =
      options.parse_special_tokens ? SpecialTokens::kParsed : SpecialTokens::kAsText;
  std::vector<int32_t> tokens;
  try {
    tokens = tokenizer.Encode(text, special);
  } catch (const EncodeError& e) {
    return InvalidArgument(field, e.what());
  }
  // A text may begin with the begin token already.
  const bool begins = begin && !tokens.empty() && tokens.front() == *begin;
  if (begin && !begins) tokens.insert(tokens.begin(), *begin);
  return tokens;
}

// A tokenizer may have more tokens than the model has rows.
std::optional<Error> CheckRows(std::span<const int32_t> tokens, const std::string& field,
                               const ModelInfo& model) {
  const auto beyond = std::find_if(tokens.begin(), tokens.end(),
                                   [&](int32_t token) { return token >= model.config.vocab_size; });
  if (beyond == tokens.end()) return std::nullopt;
  return InvalidArgument(
      field, fmt::format("holds token {} of the tokenizer, which the model does not have; allowed: "
                         "tokens from 0 to {}",
                         *beyond, model.config.vocab_size - 1));
}

// Token ids are taken as they are.
std::optional<Error> CheckNoTextOptions(const TextOptions& options, const std::string& path) {
  const auto of_text_alone = [&](const std::string& name) {
    return InvalidArgument(path + name, "is true; allowed: with text alone");
  };
  if (options.parse_special_tokens) return of_text_alone("parse_special_tokens");
  if (options.begin_token.value_or(false)) return of_text_alone("begin_token");
  return std::nullopt;
}

// A request of the prompt. `missing` names what is missing if there is no prompt.
Result<ValidRequest> WithPrompt(const Prompt& prompt, const std::string& missing,
                                const ModelInfo& model, bool generates) {
  const std::string& path = prompt.path;
  ValidRequest valid;
  std::vector<int32_t>& tokens = valid.request.prompt;
  const int64_t most = MostPromptTokens(model, generates);
  const auto too_long = [&](int64_t length) {
    return PromptTooLong(valid.prompt_field, std::to_string(length), valid.begin_token, model,
                         generates);
  };
  if (const auto* text = std::get_if<std::string_view>(&prompt.input)) {
    valid.prompt_field = path + "text";
    const auto begin = BeginToken(prompt.options, path, *model.tokenizer);
    if (!begin.ok()) return begin.error();
    valid.begin_token = begin.value().has_value();
    if (const auto error = CheckSurelyFits(std::ssize(*text), valid.begin_token, valid.prompt_field,
                                           model, generates)) {
      return *error;
    }
    auto encoded =
        EncodeText(*text, prompt.options, begin.value(), valid.prompt_field, *model.tokenizer);
    if (!encoded.ok()) return encoded.error();
    tokens = std::move(encoded).value();
    if (std::ssize(tokens) > most) return too_long(std::ssize(tokens));
    if (const auto error = CheckRows(tokens, valid.prompt_field, model)) return *error;
    if (tokens.empty()) {
      return InvalidArgument(
          valid.prompt_field,
          "is no token, and no begin token is put before it; allowed: some text");
    }
  } else if (const auto* ids = std::get_if<std::span<const int32_t>>(&prompt.input)) {
    valid.prompt_field = path + "tokens";
    if (const auto error = CheckNoTextOptions(prompt.options, path)) return *error;
    if (ids->empty()) {
      return InvalidArgument(path + "tokens.ids", "is empty; allowed: at least one token");
    }
    if (std::ssize(*ids) > most) return too_long(std::ssize(*ids));
    if (const auto error = CheckTokenIds(*ids, model, path + "tokens.ids")) return *error;
    tokens.assign(ids->begin(), ids->end());
  } else {
    return InvalidArgument(missing, "is missing; allowed: text or tokens");
  }
  return valid;
}

bool HasSpecial(std::span<const int32_t> tokens, const Tokenizer& tokenizer) {
  std::set<int32_t> special;
  for (const SpecialToken& one : tokenizer.special_tokens()) special.insert(one.token);
  return std::any_of(tokens.begin(), tokens.end(),
                     [&](int32_t token) { return special.contains(token); });
}

// The text that every choice begins with. Special tokens that were parsed have no text there, as in
// generated output.
std::string EchoOf(const Prompt& prompt, const ValidRequest& valid, const Tokenizer& tokenizer) {
  const std::span<const int32_t> tokens = valid.request.prompt;
  const auto* text = std::get_if<std::string_view>(&prompt.input);
  if (text != nullptr) {
    const std::string_view begin =
        valid.begin_token ? tokenizer.SpecialText(tokens.front()) : std::string_view();
    // The begin token was inserted, unless the text has it.
    const bool inserted = valid.begin_token && (begin.empty() || !text->starts_with(begin));
    if (!prompt.options.parse_special_tokens ||
        !HasSpecial(tokens.subspan(inserted ? 1 : 0), tokenizer)) {
      return std::string(*text);
    }
  }
  return ToValidUtf8(tokenizer.Decode(tokens));
}

serving::Priority ToPriority(int32_t number) {
  return number == 1   ? serving::Priority::kHigh
         : number == 3 ? serving::Priority::kLow
                       : serving::Priority::kNormal;
}

// How many there are of everything that is a list.
std::optional<Error> CheckCounts(const GenerateParams& params) {
  const auto most = [](size_t count) { return Range<size_t>{0, count}; };
  std::optional<Error> error;
  if ((error = CheckCount("stop", params.stop.size(), most(limits::kMaxStops), "strings")) ||
      (error = CheckCount("stop_token_ids", params.stop_token_ids.size(),
                          most(limits::kMaxStopTokens), "tokens")) ||
      (error = CheckCount("sampling.logit_bias", params.sampling.logit_bias.size(),
                          most(limits::kMaxLogitBiases), "entries")) ||
      (error = CheckCount("sampling.allowed_token_ids", params.sampling.allowed_token_ids.size(),
                          most(limits::kMaxAllowedTokens), "tokens"))) {
    return error;
  }
  return std::nullopt;
}

// Whether there is a token that can be chosen while the output may not end.
bool SomeTokenGoesOn(const serving::Request& request, const ModelInfo& model) {
  std::set<int32_t> ends(request.stop_tokens.begin(), request.stop_tokens.end());
  const std::span<const int32_t> of_model = model.tokenizer->end_tokens();
  ends.insert(of_model.begin(), of_model.end());
  const std::vector<int32_t>& allowed = request.sampling.allowed;
  if (allowed.empty()) return std::ssize(ends) < model.config.vocab_size;
  return std::any_of(allowed.begin(), allowed.end(),
                     [&](int32_t token) { return !ends.contains(token); });
}

std::optional<Error> CheckStops(const std::vector<std::string>& stops) {
  const Range<size_t>& bytes = limits::kStopBytes;
  size_t all = 0;
  for (size_t i = 0; i < stops.size(); ++i) {
    all += stops[i].size();
    if (bytes.Contains(stops[i].size())) continue;
    return InvalidArgument(
        fmt::format("stop[{}]", i),
        fmt::format("is {} bytes long; allowed: {} to {}", stops[i].size(), bytes.low, bytes.high));
  }
  if (all <= limits::kMaxStopBytes) return std::nullopt;
  return InvalidArgument("stop", fmt::format("has {} bytes; allowed: at most {} together", all,
                                             limits::kMaxStopBytes));
}

// Sets the strings and tokens that end the output.
std::optional<Error> TakeStops(const GenerateParams& params, const ModelInfo& model,
                               serving::Request& request) {
  if (auto error = CheckStops(params.stop)) return error;
  request.stop = params.stop;
  if (auto error = CheckTokenIds(params.stop_token_ids, model, "stop_token_ids")) return error;
  request.stop_tokens.assign(params.stop_token_ids.begin(), params.stop_token_ids.end());
  if (!params.end_of_turn.empty()) {
    // The text of a form may contain it, except of an answer.
    const bool answers = !params.form && (!params.calls || params.calls->may_answer);
    if (answers) request.stop.push_back(params.end_of_turn);
    for (const SpecialToken& special : model.tokenizer->special_tokens()) {
      if (special.text == params.end_of_turn) request.stop_tokens.push_back(special.token);
    }
  }
  if (request.min_new_tokens == 0 || SomeTokenGoesOn(request, model)) return std::nullopt;
  return InvalidArgument("min_new_tokens",
                         fmt::format("is {}, but every token that can be chosen ends the output; "
                                     "allowed: 0",
                                     request.min_new_tokens));
}

// Sets the lengths, choices and priority. The prompt is set.
std::optional<Error> TakeCounts(const GenerateParams& params, const ModelInfo& model,
                                serving::Request& request) {
  if (params.max_new_tokens != 0) {
    const int64_t most = params.max_new_tokens.value_or(std::max(
        model.defaults.max_new_tokens.value_or(limits::kNewTokens.high), params.min_new_tokens));
    request.max_new_tokens =
        std::clamp<int64_t>(MostPositions(model) - std::ssize(request.prompt), 1, most);
  }
  const Range<int64_t> min_range = {0, request.max_new_tokens};
  if (auto error = CheckRange("min_new_tokens", params.min_new_tokens, min_range)) return error;
  request.min_new_tokens = params.min_new_tokens;
  request.choices = params.n.value_or(1);
  if (auto error = CheckRange("n", request.choices, limits::kChoices)) return error;
  if (auto error = CheckRange("priority", params.priority, limits::kPriority)) return error;
  request.priority = ToPriority(params.priority);
  return std::nullopt;
}

// Sets what speeds the output up without changing it.
std::optional<Error> TakeDrafts(const GenerateParams& params, const ModelInfo& model,
                                serving::Request& request) {
  if (params.max_draft_tokens) {
    if (auto error =
            CheckRange("max_draft_tokens", *params.max_draft_tokens, limits::kDraftTokens)) {
      return error;
    }
    request.most_drafted = std::min(*params.max_draft_tokens, serving::kMostDrafted);
  }
  if (params.prediction.size() > limits::kMaxPredictionBytes) {
    return InvalidArgument(
        "prediction", fmt::format("is {} bytes long; allowed: at most {}", params.prediction.size(),
                                  limits::kMaxPredictionBytes));
  }
  if (params.prediction.empty() || request.most_drafted == 0) return std::nullopt;
  auto tokens = EncodeText(params.prediction, {}, std::nullopt, "prediction", *model.tokenizer);
  if (!tokens.ok()) return std::nullopt;  // the output cannot resemble it
  request.prediction = std::move(tokens).value();
  // The output is no longer.
  const int64_t most = MostPositions(model);
  if (std::ssize(request.prediction) > most) request.prediction.resize(most);
  return std::nullopt;
}

uint64_t DrawSeed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

Result<ValidRequest> Validate(const GenerateParams& params, const ModelInfo& model) {
  std::optional<Error> error = CheckCounts(params);
  if (error) return *error;
  const bool scores = params.echo || params.prompt_logprobs;  // alone, without new tokens
  const Range<int64_t> length_range = {scores ? 0 : limits::kNewTokens.low,
                                       limits::kNewTokens.high};
  if (params.max_new_tokens &&
      (error = CheckRange("max_new_tokens", *params.max_new_tokens, length_range))) {
    return *error;
  }
  const bool generates = params.max_new_tokens != 0;
  Result<ValidRequest> valid = WithPrompt(params.prompt, "prompt", model, generates);
  if (!valid.ok()) return valid;
  serving::Request& request = valid.value().request;
  if ((error = TakeCounts(params, model, request))) return *error;

  Result<serving::SamplingParams> sampling = ValidateSampling(params.sampling, model);
  if (!sampling.ok()) return sampling.error();
  request.sampling = std::move(sampling).value();
  request.seed = params.sampling.seed ? *params.sampling.seed : DrawSeed();

  if ((error = TakeStops(params, model, request))) return *error;
  const auto check_logprobs = [&](const std::string& field, const std::optional<int32_t>& count) {
    return count ? CheckRange(field, *count, limits::kLogprobs) : std::nullopt;
  };
  if ((error = check_logprobs("logprobs", params.logprobs))) return *error;
  if ((error = check_logprobs("prompt_logprobs", params.prompt_logprobs))) return *error;
  request.logprobs = params.logprobs;
  request.prompt_logprobs = params.prompt_logprobs;
  request.ignore_eos = params.ignore_eos;
  request.include_stop = params.include_stop;
  request.show_special = params.show_special;
  request.shown_tokens = params.shown_tokens;
  request.share_prefix = !params.bypass_prefix_cache;
  if ((error = TakeDrafts(params, model, request))) return *error;
  if (params.echo) valid.value().echo = EchoOf(params.prompt, valid.value(), *model.tokenizer);
  return valid;
}

Result<std::vector<ValidRequest>> Validate(const ScoreParams& params, const ModelInfo& model) {
  std::optional<Error> error =
      CheckCount("inputs", params.inputs.size(), limits::kScoreInputs, "entries");
  if (!error) error = CheckRange("priority", params.priority, limits::kPriority);
  if (error) return *error;
  std::vector<ValidRequest> requests;
  for (size_t i = 0; i < params.inputs.size(); ++i) {
    const std::string input = fmt::format("inputs[{}]", i);
    Prompt prompt = params.inputs[i];
    prompt.path = input + ".";
    Result<ValidRequest> valid = WithPrompt(prompt, input, model, /*generates=*/false);
    if (!valid.ok()) return valid.error();
    valid.value().request.prompt_logprobs = 0;
    valid.value().request.priority = ToPriority(params.priority);
    requests.push_back(std::move(valid).value());
  }
  return requests;
}

Result<TokenizedText> Tokenize(const TokenizeParams& params, const ModelInfo& model) {
  const Tokenizer& tokenizer = *model.tokenizer;
  if (params.pieces && params.text.size() > limits::kMaxTextOfPieces) {
    return InvalidArgument("text", fmt::format("is {} bytes long; allowed with pieces: at most {}",
                                               params.text.size(), limits::kMaxTextOfPieces));
  }
  const auto begin = BeginToken(params.options, "", tokenizer);
  if (!begin.ok()) return begin.error();
  auto tokens = EncodeText(params.text, params.options, begin.value(), "text", tokenizer);
  if (!tokens.ok()) return tokens.error();
  TokenizedText tokenized{.tokens = std::move(tokens).value(), .pieces = {}, .offsets = {}};
  if (!params.pieces) return tokenized;
  TokenStream stream;
  for (const int32_t token : tokenized.tokens) {
    tokenized.offsets.push_back(std::ssize(tokenized.pieces));
    tokenized.pieces += stream.Push(tokenizer, token);
  }
  return tokenized;
}

Result<std::string> Detokenize(std::span<const int32_t> ids, const ModelInfo& model) {
  if (const auto error = CheckTokenIds(ids, model, "token_ids")) return *error;
  std::string text;
  TokenStream stream;
  Utf8Stream utf8;
  for (const int32_t id : ids) {
    text += utf8.Push(stream.Push(*model.tokenizer, id));
    if (text.size() > limits::kMaxDetokenizedBytes) break;
  }
  text += utf8.Flush();
  if (text.size() > limits::kMaxDetokenizedBytes) {
    return InvalidArgument("token_ids",
                           fmt::format("stand for more than {0} bytes; allowed: at most {0}",
                                       limits::kMaxDetokenizedBytes));
  }
  return text;
}

Result<size_t> ValidatePageSize(int32_t page_size) {
  if (page_size < 0) {
    return InvalidArgument("page_size", fmt::format("is {}; allowed: 0 to {}; more counts as that",
                                                    page_size, limits::kMaxPageSize));
  }
  if (page_size == 0) return kDefaultPageSize;
  return static_cast<size_t>(std::min(page_size, limits::kMaxPageSize));
}

Result<std::chrono::milliseconds> ValidateInterval(const std::optional<IntervalFields>& interval) {
  using std::chrono::milliseconds;
  if (!interval) return kDefaultInterval;
  constexpr int64_t kNanosPerMilli = 1'000'000;
  const auto [low, high, above_low] = limits::kWatchInterval;
  // Seconds by themselves first: an absurd number of them would overflow.
  const bool sensible = interval->seconds >= 0 && interval->seconds <= high / 1000 &&
                        interval->nanos >= 0 && interval->nanos < 1000 * kNanosPerMilli;
  const int64_t nanos =
      sensible ? interval->seconds * 1000 * kNanosPerMilli + interval->nanos : int64_t{-1};
  if (nanos < low * kNanosPerMilli || nanos > high * kNanosPerMilli) {
    return InvalidArgument("interval", fmt::format("is {} s and {} ns; allowed: {} to {} ms",
                                                   interval->seconds, interval->nanos, low, high));
  }
  return milliseconds(nanos / kNanosPerMilli);
}

}  // namespace triptych::server
