// Interface of drafters, which guess the next tokens of a sequence.
#ifndef TRIPTYCH_ENGINE_SERVING_DRAFTER_H_
#define TRIPTYCH_ENGINE_SERVING_DRAFTER_H_

#include <cstdint>
#include <span>
#include <vector>

namespace triptych::serving {

// Tokens that may follow a sequence. A step computes their rows with the row of the last token, and
// accepts each one that the sampler chooses (Leviathan, Kalman and Matias 2023, for equality).
struct Draft {
  static constexpr int kStrengths = 4;              // of a Drafter
  static constexpr int kByDraftModel = kStrengths;  // of a draft model

  std::vector<int32_t> tokens;
  // 0 to kStrengths - 1, or kByDraftModel. Drafts of one strength are about equally often right.
  int strength = 0;
};

// Drafter of one sequence. Not thread-safe.
class Drafter {
 public:
  virtual ~Drafter() = default;

  // Replaces `draft` by at most `most` tokens that may follow `tokens`, the sequence's prompt and
  // output. From one call to the next, `tokens` only grows.
  virtual void Propose(std::span<const int32_t> tokens, int64_t most, Draft& draft) = 0;
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_DRAFTER_H_
