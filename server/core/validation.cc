#include "server/core/validation.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <random>
#include <utility>

#include "engine/base/parse.h"
#include "engine/base/request_limits.h"

namespace triptych {
namespace {

constexpr size_t kDefaultPageSize = 100;
constexpr std::chrono::milliseconds kDefaultInterval{1000};

template <typename T>
std::optional<Error> CheckRange(const std::string& field, T value, const Range<T>& range) {
  if (range.Contains(value)) return std::nullopt;
  return InvalidArgument(
      field, fmt::format("is {}; allowed: {}{} to {}", value, range.above_low ? "above " : "",
                         range.low, range.high));
}

// The begin token and then the prompt's own. `missing` names the field if there is no prompt.
Result<ValidRequest> WithPrompt(const Prompt& prompt, const std::string& missing,
                                const ServedModel& model) {
  ValidRequest valid;
  std::vector<int32_t>& tokens = valid.request.prompt;
  tokens = {model.tokenizer->begin_token()};
  if (const auto* text = std::get_if<std::string_view>(&prompt)) {
    valid.prompt_field = "text";
    const std::vector<int32_t> encoded = model.tokenizer->Encode(*text);
    tokens.insert(tokens.end(), encoded.begin(), encoded.end());
  } else if (const auto* ids = std::get_if<std::span<const int32_t>>(&prompt)) {
    valid.prompt_field = "tokens";
    if (const auto error = CheckTokenIds(*ids, model, "tokens.ids")) return *error;
    tokens.insert(tokens.end(), ids->begin(), ids->end());
  } else {
    return InvalidArgument(missing, "is missing; allowed: text or tokens");
  }
  return valid;
}

Result<SamplingParams> ValidateSampling(const SamplingFields& fields, const ServedModel& model) {
  SamplingParams params;
  std::optional<Error> error;
  const auto take = [&]<typename T>(const std::string& name, const std::optional<T>& field,
                                    const Range<T>& range, T& value) {
    if (error || !field) return;
    error = CheckRange("sampling." + name, *field, range);
    value = *field;
  };
  take("temperature", fields.temperature, limits::kTemperature, params.temperature);
  take("top_k", fields.top_k, limits::kTopK, params.top_k);
  take("top_p", fields.top_p, limits::kTopP, params.top_p);
  take("min_p", fields.min_p, limits::kMinP, params.min_p);
  take("repetition_penalty", fields.repetition_penalty, limits::kRepetitionPenalty,
       params.repetition_penalty);
  take("presence_penalty", fields.presence_penalty, limits::kPresencePenalty,
       params.presence_penalty);
  take("frequency_penalty", fields.frequency_penalty, limits::kFrequencyPenalty,
       params.frequency_penalty);
  if (error) return *error;

  for (const auto& [token, bias] : fields.logit_bias) {
    const std::string field = fmt::format("sampling.logit_bias[{}]", token);
    if (token < 0 || token >= model.config.vocab_size) {
      return InvalidArgument(
          field, fmt::format("names no token; allowed: 0 to {}", model.config.vocab_size - 1));
    }
    if ((error = CheckRange(field, bias, limits::kLogitBias))) return *error;
    params.logit_bias.emplace(token, bias);
  }
  return params;
}

std::optional<Error> CheckStops(const std::vector<std::string>& stops) {
  if (stops.size() > limits::kMaxStops) {
    return InvalidArgument(
        "stop", fmt::format("has {} strings; allowed: {}", stops.size(), limits::kMaxStops));
  }
  const Range<size_t>& bytes = limits::kStopBytes;
  for (size_t i = 0; i < stops.size(); ++i) {
    if (bytes.Contains(stops[i].size())) continue;
    return InvalidArgument(
        fmt::format("stop[{}]", i),
        fmt::format("is {} bytes long; allowed: {} to {}", stops[i].size(), bytes.low, bytes.high));
  }
  return std::nullopt;
}

uint64_t DrawSeed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

std::optional<Error> CheckTokenIds(std::span<const int32_t> ids, const ServedModel& model,
                                   const std::string& field) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < model.config.vocab_size) continue;
    return InvalidArgument(
        fmt::format("{}[{}]", field, i),
        fmt::format("is {}; allowed: 0 to {}", ids[i], model.config.vocab_size - 1));
  }
  return std::nullopt;
}

Result<ValidRequest> Validate(const GenerateParams& params, const ServedModel& model) {
  Result<ValidRequest> valid = WithPrompt(params.prompt, "prompt", model);
  if (!valid.ok()) return valid;
  Request& request = valid.value().request;

  if (params.max_new_tokens) {
    const Range<int64_t> range = {limits::kNewTokens.low, limits::kNewTokens.high};
    if (const auto error = CheckRange("max_new_tokens", *params.max_new_tokens, range)) {
      return *error;
    }
    request.max_new_tokens = *params.max_new_tokens;
  } else {
    // As many as the context holds, and the pool: the last token needs no row.
    const int64_t fits = std::min(model.config.max_position_embeddings, model.pool_positions + 1);
    request.max_new_tokens = std::max<int64_t>(1, fits - std::ssize(request.prompt));
  }

  Result<SamplingParams> sampling = ValidateSampling(params.sampling, model);
  if (!sampling.ok()) return sampling.error();
  request.sampling = std::move(sampling).value();
  request.seed = params.sampling.seed ? *params.sampling.seed : DrawSeed();

  if (const auto error = CheckStops(params.stop)) return *error;
  request.stop = params.stop;
  if (params.logprobs) {
    if (const auto error = CheckRange("logprobs", *params.logprobs, limits::kLogprobs)) {
      return *error;
    }
    request.logprobs = params.logprobs;
  }
  request.ignore_eos = params.ignore_eos;
  return valid;
}

Result<ValidRequest> Validate(const ScoreParams& params, const ServedModel& model) {
  Result<ValidRequest> valid = WithPrompt(params.input, "input", model);
  if (valid.ok()) valid.value().request.prompt_logprobs = 0;
  return valid;
}

Error Rejection(SubmitStatus status, const RequestSize& size, const ServedModel& model) {
  const int64_t context = model.config.max_position_embeddings;
  const int64_t pool = model.pool_positions;
  const auto prompt_exceeds = [&](int64_t most, const std::string& why) {
    return InvalidArgument(size.prompt_field,
                           fmt::format("is {} tokens with the begin token; allowed: at most {}, {}",
                                       size.prompt_tokens, most, why));
  };
  switch (status) {
    case SubmitStatus::kQueueFull:
    case SubmitStatus::kQueueTimeout:
      return QueueFull();
    case SubmitStatus::kPromptTooLong:
      return size.max_new_tokens > 0
                 ? prompt_exceeds(context - 1, "so that the model's context holds a new token too")
                 : prompt_exceeds(context, "the model's context");
    case SubmitStatus::kNeverFits:
      if (size.prompt_tokens > pool) return prompt_exceeds(pool, "the model's key/value cache");
      return InvalidArgument(  // the last new token takes no position
          "max_new_tokens",
          fmt::format("is {}; allowed: at most {}, as the model's key/value cache has {} positions "
                      "and the prompt is {} tokens with the begin token",
                      size.max_new_tokens, pool - size.prompt_tokens + 1, pool,
                      size.prompt_tokens));
    case SubmitStatus::kStopping:
      return ShuttingDown();
    case SubmitStatus::kAccepted:
      break;
  }
  return Internal("the request was refused without a reason");
}

Result<PageRange> ValidatePage(const ListSequencesParams& params) {
  if (const auto error = CheckRange("page_size", params.page_size, limits::kPageSize)) {
    return *error;
  }
  PageRange range;
  range.size = params.page_size == 0 ? kDefaultPageSize : static_cast<size_t>(params.page_size);
  if (params.page_token.empty()) return range;
  const std::optional<uint64_t> after = ParseNumber<uint64_t>(params.page_token);
  if (!after) {
    return InvalidArgument("page_token", Quote(params.page_token) + " is not one this server gave");
  }
  range.after = *after;
  return range;
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

}  // namespace triptych
