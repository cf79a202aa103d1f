// Chooses the next token from logits. Torch-free, not thread-safe: one sampler per sequence.
// Throughout, a NaN counts as -inf, which has no probability, and +inf as the largest float.
// Probabilities are float32 and their sums float64 (engine/kernels/logits.h); on one instruction
// set the token depends on nothing but the row, the parameters and the generator. So it does of
// likely tokens, on one device. The time is linear in the number of logits, whatever they are; each
// thread keeps what it computes in, so that
// choosing takes nothing from the heap.
#ifndef TRIPTYCH_ENGINE_SERVING_SAMPLER_H_
#define TRIPTYCH_ENGINE_SERVING_SAMPLER_H_

#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/backend/model_backend.h"

namespace triptych::serving {

// Applied in this order: allowed tokens, logit bias, repetition penalty, presence and frequency
// penalty, temperature, top_k, top_p (of what top_k kept), min_p; equals are kept by lower id.
// Ranges are those of triptych.v1.SamplingParams; the caller checks them.
struct SamplingParams {
  float temperature = 1;  // 0: the most likely token, the lowest id among equals
  int32_t top_k = 0;      // 0: all
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;  // of tokens in prompt or output (Keskar et al. 2019)
  float presence_penalty = 0;    // of tokens in the output, once
  float frequency_penalty = 0;   // of tokens in the output, each time
  std::unordered_map<int32_t, float> logit_bias = {};
  std::vector<int32_t> allowed = {};  // only these, unless empty
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;  // natural logarithm under the model's own distribution
};

struct TokenLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // most likely first
};

// log(sum(exp(logits))). -inf if no token is possible.
double LogSumExp(std::span<const float> logits);

// The log-probability of `chosen` and of the `top` most likely tokens (equals by lower id; all of
// them if there are fewer). REQUIRES: `chosen` has a logit.
TokenLogprobs Logprobs(std::span<const float> logits, int32_t chosen, int32_t top);
// The same of a row's likely tokens. REQUIRES: `chosen` and `top` of them are there, or all tokens.
TokenLogprobs Logprobs(const LikelyTokens& likely, int32_t chosen, int32_t top);

class Sampler {
 public:
  // The generator is std::mt19937_64 from `seed`; draws are the same on every platform.
  Sampler(SamplingParams params, uint64_t seed, std::span<const int32_t> prompt);

  // Chooses a token and remembers it for the penalties. `logits` has one value per token id.
  // A token without probability or among `forbidden` is never chosen; if nothing can be, the result
  // is -1.
  int32_t Sample(std::span<const float> logits, std::span<const int32_t> forbidden = {});

  // Whether that many likely tokens of a row mostly suffice to choose a token, and `top` of the
  // likeliest, when up to `forbidden` of them are forbidden: nothing changes logits, and top_k is
  // not too large. Depends on the parameters only, so that a request is always served one way.
  bool UsesLikely(int64_t tokens, int64_t forbidden, int64_t top) const;
  // The scale at which Sample wants LikelyTokens::weight_sum.
  float likely_scale() const;
  // Chooses from a row's likely tokens. Absent if the choice depends on others: SampleRest is then
  // to be called with the whole row. Draws of all tokens go through the likeliest first, so that a
  // token differs from that of Sample(logits). REQUIRES: UsesLikely.
  std::optional<int32_t> Sample(const LikelyTokens& likely,
                                std::span<const int32_t> forbidden = {});
  int32_t SampleRest(std::span<const float> logits, const LikelyTokens& likely,
                     std::span<const int32_t> forbidden = {});

 private:
  // What bias and penalties make of the logits, in `changed`.
  void Change(std::span<const float> logits, std::span<const int32_t> forbidden,
              float* changed) const;

  // The weight of a logit when tokens are drawn.
  double Weight(float logit, float largest) const;
  // A draw from all tokens that top_p and min_p keep. Absent if the whole row is needed: rest_ is
  // then set if a token behind the likely ones was drawn, and must be used up by SampleRest.
  std::optional<int32_t> DrawLikely(const LikelyTokens& likely, const float* logits,
                                    bool all_forbidden_known, double forbidden_weight);

  SamplingParams params_;
  std::mt19937_64 generator_;
  // Set between Sample and SampleRest if a token behind the likely ones was drawn: the weight that
  // is left to go through.
  std::optional<double> rest_;
  bool penalizes_;  // a penalty is not neutral
  std::unordered_map<int32_t, int32_t>
      output_counts_;  // empty unless penalizes_; 0: only in prompt
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_SAMPLER_H_
