// Fuzz target: sampling options that pass validation, and logits of any bits.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/base/request_limits.h"
#include "engine/serving/sampler.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/targets.h"

namespace triptych {
namespace {

template <typename T>
T InRange(FuzzInput& input, const Range<T>& range) {
  const T value = input.Value<T>();
  return range.Contains(value) ? value : range.high;
}

serving::SamplingParams TakeParams(FuzzInput& input) {
  serving::SamplingParams params;
  // Bits that select the given options, so that few bytes leave most at their defaults.
  const auto given = input.Value<uint8_t>();
  if (given & 1) params.temperature = InRange(input, limits::kTemperature);
  if (given & 2) params.top_k = InRange(input, limits::kTopK);
  if (given & 4) params.top_p = InRange(input, limits::kTopP);
  if (given & 8) params.min_p = InRange(input, limits::kMinP);
  if (given & 16) params.repetition_penalty = InRange(input, limits::kRepetitionPenalty);
  if (given & 32) params.presence_penalty = InRange(input, limits::kPresencePenalty);
  if (given & 64) {
    params.frequency_penalty = InRange(input, limits::kFrequencyPenalty);
    params.penalty_window = std::max<int32_t>(-1, input.Value<int8_t>());
  }
  if (given & 128) {
    for (size_t left = input.AtMost(8); left > 0; --left) {
      const int32_t token = input.Value<int8_t>();
      params.logit_bias.emplace(token, InRange(input, limits::kLogitBias));
    }
  }
  return params;
}

// Token ids; few of them need to have a logit.
std::vector<int32_t> TakeTokens(FuzzInput& input) {
  std::vector<int32_t> tokens(input.AtMost(4));
  for (int32_t& token : tokens) token = input.Value<int8_t>();
  return tokens;
}

bool Holds(const std::vector<int32_t>& tokens, int32_t token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

bool Possible(float logit) {
  return !std::isnan(logit) && logit != -std::numeric_limits<float>::infinity();
}

}  // namespace

void FuzzSampler(std::string_view bytes) {
  FuzzInput input(bytes);
  serving::SamplingParams params = TakeParams(input);
  const std::vector<int32_t> prompt = TakeTokens(input);
  const auto seed = input.Value<uint16_t>();
  const auto top = static_cast<int32_t>(input.AtMost(20));
  const size_t samples = 1 + input.AtMost(7);
  std::vector<float> logits(input.AtMost(64));
  for (float& logit : logits) logit = input.Value<float>();
  params.allowed = TakeTokens(input);
  const std::vector<int32_t> forbidden = TakeTokens(input);
  const std::vector<float> some = logits;  // repeated, for rows that are scanned in parts
  for (size_t more = input.AtMost(15); more > 0; --more) {
    logits.insert(logits.end(), some.begin(), some.end());
  }

  const auto can_be_chosen = [&](int32_t token) {
    return Possible(logits[token]) && !Holds(forbidden, token) &&
           (params.allowed.empty() || Holds(params.allowed, token));
  };
  bool any = false;
  for (int32_t token = 0; token < std::ssize(logits); ++token) any |= can_be_chosen(token);
  serving::Sampler sampler(params, seed, prompt);
  for (size_t i = 0; i < samples; ++i) {
    const int32_t token = sampler.Sample(logits, forbidden);
    Promise((token == -1) == !any, "a token is chosen if one is possible");
    if (token == -1) return;
    Promise(token >= 0 && token < std::ssize(logits), "a token has a logit");
    Promise(can_be_chosen(token), "a token that is chosen has a probability and is not forbidden");

    const serving::TokenLogprobs logprobs = serving::Logprobs(logits, token, top);
    Promise(logprobs.chosen.token == token, "the chosen token's log-probability");
    Promise(logprobs.chosen.logprob <= 1e-6f, "no probability is above 1, and none is NaN");
    Promise(std::ssize(logprobs.top) == std::min<int64_t>(top, std::ssize(logits)),
            "as many as are asked for");
    for (size_t j = 0; j < logprobs.top.size(); ++j) {
      Promise(logprobs.top[j].logprob <= 1e-6f, "no probability is above 1, and none is NaN");
      Promise(j == 0 || logprobs.top[j].logprob <= logprobs.top[j - 1].logprob,
              "the most likely come first");
    }
    Promise(top == 0 || logprobs.top[0].logprob >= logprobs.chosen.logprob,
            "no token is likelier than the first");
  }
}

}  // namespace triptych
