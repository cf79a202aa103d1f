// Drafter that looks up the last tokens in earlier text.
#ifndef TRIPTYCH_ENGINE_SERVING_NGRAM_DRAFTER_H_
#define TRIPTYCH_ENGINE_SERVING_NGRAM_DRAFTER_H_

#include <cstdint>
#include <memory>
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

  // Adds n-grams of `tokens`, at most `most`, the first ones first. Call it again for the rest, and
  // with further tokens at the end. When the table of hashes grows, it adds all of them again.
  void Extend(std::span<const int32_t> tokens, int64_t most);
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
  std::vector<int32_t> before_;  // [last end added + 1]: the end before it with that hash
};

// The n-grams of a text that are looked up.
struct NgramIndices {
  static constexpr int64_t kLong = 6, kShort = 2;

  NgramIndex longs{kLong}, shorts{kShort};
};

// Finds the longest earlier match of the last tokens, in the prediction and in the sequence, and
// drafts the tokens after it. After a mismatch it first tries to go on behind the replaced token.
//
// A proposal takes a bounded time, except for memory that grows. It adds at most kMostAdded tokens
// of each text to the indices: the end of a very long text is found some proposals later.
class NgramDrafter final : public Drafter {
 public:
  // `prediction`: tokens that the output is expected to resemble; may be empty. It must outlive the
  // drafter. `prompt`: the prompt's length. `predicted`: the prediction's indices, which the
  // drafters of a request share; not null.
  NgramDrafter(std::span<const int32_t> prediction, int64_t prompt,
               std::shared_ptr<NgramIndices> predicted = std::make_shared<NgramIndices>());

  void Propose(std::span<const int32_t> tokens, int64_t most, Draft& draft) override;

 private:
  static constexpr int64_t kLongestMatch = 32;  // beyond it, matches are equally good
  static constexpr int64_t kMostAdded = 2048;

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
  const std::shared_ptr<NgramIndices> predicted_;  // of the prediction
  NgramIndices own_;                               // of the sequence
  Place next_;                                     // the last draft's, moved on by the tokens since
  int64_t seen_ = 0;                               // tokens at the last proposal
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_NGRAM_DRAFTER_H_
