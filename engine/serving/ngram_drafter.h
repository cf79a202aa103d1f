// Drafter that looks up the last tokens in earlier text.
#ifndef TRIPTYCH_ENGINE_SERVING_NGRAM_DRAFTER_H_
#define TRIPTYCH_ENGINE_SERVING_NGRAM_DRAFTER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/serving/drafter.h"

namespace triptych::serving {

// The places of each n-gram of a text, as hash chains (Deutsch 1996, RFC 1951 section 4). Takes 8
// to 16 bytes per token. Not thread-safe.
class NgramIndex {
 public:
  explicit NgramIndex(int64_t n) : n_(n) {}

  int64_t n() const { return n_; }

  // Adds the n-grams that end at or before the end of `tokens`, whose beginning was added before.
  void Extend(std::span<const int32_t> tokens);
  // Calls visit(end) for up to kMostCandidates places tokens[end - n, end) that may equal the last
  // n of `tail`, the latest first. Their hashes are equal.
  template <typename Visit>
  void ForEach(std::span<const int32_t> tail, const Visit& visit) const {
    if (heads_.empty() || std::ssize(tail) < n_) return;
    int32_t end = heads_[Slot(tail.last(n_))];
    for (int i = 0; i < kMostCandidates && end != kNone; ++i) {
      visit(int64_t{end});
      end = before_[end];
    }
  }

 private:
  static constexpr int kMostCandidates = 16;
  static constexpr int32_t kNone = -1;

  size_t Slot(std::span<const int32_t> ngram) const;
  void Add(std::span<const int32_t> tokens, int64_t end);

  const int64_t n_;
  std::vector<int32_t> heads_;   // [a power of two], by hash: the latest end
  std::vector<int32_t> before_;  // [tokens + 1], by end: the end before it with that hash
};

// Finds the longest earlier match of the last tokens, in the prediction and in the sequence, and
// drafts the tokens after it. After a mismatch it first tries to go on behind the replaced token.
// A proposal takes a bounded time, plus the time to add the new tokens to the indices.
class NgramDrafter final : public Drafter {
 public:
  // `prediction`: tokens that the output is expected to resemble; may be empty. It must outlive the
  // drafter. `prompt`: the prompt's length.
  NgramDrafter(std::span<const int32_t> prediction, int64_t prompt);

  void Propose(std::span<const int32_t> tokens, int64_t most, Draft& draft) override;

 private:
  static constexpr int64_t kLong = 6, kShort = 2;  // n-grams that are looked up
  static constexpr int64_t kLongestMatch = 32;     // beyond it, matches are equally good

  // Where a draft begins: after `end` tokens of the text. `length`: tokens before it that match.
  struct Place {
    bool predicted = false;  // in the prediction, not in the sequence
    int64_t end = 0;
    int64_t length = 0;
  };

  std::span<const int32_t> TextOf(const Place& place, std::span<const int32_t> tokens) const {
    return place.predicted ? prediction_ : tokens;
  }
  // Sets the place's length.
  void Measure(std::span<const int32_t> tokens, Place& place) const;
  Place FindLongest(std::span<const int32_t> tokens);

  const std::span<const int32_t> prediction_;
  const int64_t prompt_;
  NgramIndex long_{kLong}, short_{kShort};                      // of the sequence
  NgramIndex predicted_long_{kLong}, predicted_short_{kShort};  // of the prediction
  Place next_;        // the last draft's, moved on by the tokens since
  int64_t seen_ = 0;  // tokens at the last proposal
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_NGRAM_DRAFTER_H_
