// Sampler: the choice of the next token from logits.
//
// Throughout, NaN counts as -inf, which has no probability, and +inf as the largest float.
// Probabilities are float32 and their sums float64 (engine/kernels/logits.h). The token depends
// only on the row, the parameters and the generator, on one instruction set or, for likely tokens,
// on one device. The time is linear in the number of logits, whatever they are. Each thread keeps a
// workspace, so that sampling allocates nothing on the heap.
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
// penalty, temperature, top_k, top_p (of the tokens that top_k kept), min_p. Among equals, lower
// ids are kept. Ranges are those of triptych.v1.SamplingParams; the caller checks them.
struct SamplingParams {
  float temperature = 1;  // 0: the most likely token, the lowest id of equals
  int32_t top_k = 0;      // 0: all
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;  // of tokens in prompt or output (Keskar et al. 2019)
  float presence_penalty = 0;    // of tokens in the output, once
  float frequency_penalty = 0;   // of tokens in the output, each time
  int32_t penalty_window = -1;   // penalties see this number of last tokens; -1: all
  std::unordered_map<int32_t, float> logit_bias = {};
  std::vector<int32_t> allowed = {};  // if not empty, only these can be chosen
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
// The same from a row's likely tokens. REQUIRES: they include `chosen`, and are at least `top`
// tokens or all tokens.
TokenLogprobs Logprobs(const LikelyTokens& likely, int32_t chosen, int32_t top);

// The tokens that can be chosen.
struct ChoosableTokens {
  std::span<const uint64_t> mask;  // token t is bit t % 64 of word t / 64; tokens beyond are not
  std::span<const int32_t> also;   // in addition
};

// Not thread-safe: one sampler per sequence.
class Sampler {
 public:
  // The generator is std::mt19937_64 from `seed`; draws are the same on every platform.
  Sampler(SamplingParams params, uint64_t seed, std::span<const int32_t> prompt);

  // Chooses a token and records it for the penalties. `logits` has one value per token id. Never
  // chooses a token without probability or one of `forbidden`, nor any but `choosable` if given;
  // returns -1 if no other is left.
  int32_t Sample(std::span<const float> logits, std::span<const int32_t> forbidden = {},
                 const ChoosableTokens* choosable = nullptr);

  // True if `tokens` likely tokens of a row mostly suffice to choose a token and to report the
  // `top` likeliest, with up to `forbidden` forbidden tokens: nothing changes logits, and top_k is
  // small enough. Depends only on the parameters, so that a request is always served the same way.
  bool UsesLikely(int64_t tokens, int64_t forbidden, int64_t top) const;
  // The scale that Sample requires of LikelyTokens::weight_sum.
  float likely_scale() const;
  // Chooses from a row's likely tokens. Absent if the choice depends on other tokens; the caller
  // must then call SampleRest with the whole row. Draws go through the likeliest tokens first, so
  // the token may differ from that of Sample(logits). REQUIRES: UsesLikely.
  std::optional<int32_t> Sample(const LikelyTokens& likely,
                                std::span<const int32_t> forbidden = {});
  int32_t SampleRest(std::span<const float> logits, const LikelyTokens& likely,
                     std::span<const int32_t> forbidden = {});

 private:
  // Applies allowed, choosable and forbidden tokens, biases and penalties to the logits; writes
  // `changed`.
  void Change(std::span<const float> logits, std::span<const int32_t> forbidden,
              const ChoosableTokens* choosable, float* changed) const;

  // Sampling weight of a logit, relative to that of `largest`.
  double Weight(float logit, float largest) const;
  // Draws from the tokens that top_p and min_p keep. Absent if the whole row is needed. If the draw
  // is beyond the likely tokens, rest_ is then set, and SampleRest must consume it.
  std::optional<int32_t> DrawLikely(const LikelyTokens& likely, const float* logits,
                                    bool all_forbidden_known, double forbidden_weight);

  SamplingParams params_;
  std::mt19937_64 generator_;
  // Set between Sample and SampleRest if the draw is beyond the likely tokens: the weight left to
  // pass over.
  std::optional<double> rest_;
  // The tokens that penalties see; none unless penalizes_.
  struct SeenToken {
    int32_t token;
    bool output;  // not of the prompt
  };
  struct Occurrences {
    int32_t prompt = 0;
    int32_t output = 0;
  };
  void See(SeenToken seen);

  bool penalizes_;  // a penalty is not neutral, and sees tokens
  std::unordered_map<int32_t, Occurrences> occurrences_;
  std::vector<SeenToken> window_;  // a ring, if penalty_window bounds it
  size_t oldest_ = 0;              // index in a full window_
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_SAMPLER_H_
