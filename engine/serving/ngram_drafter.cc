#include "engine/serving/ngram_drafter.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace triptych::serving {
namespace {

int StrengthOf(int64_t length) {
  if (length <= 2) return 0;
  if (length <= 4) return 1;
  return length <= 8 ? 2 : 3;
}

}  // namespace

size_t NgramIndex::Slot(std::span<const int32_t> ngram) const {
  uint64_t hash = 0;
  for (const int32_t token : ngram) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  }
  return hash & (heads_.size() - 1);
}

void NgramIndex::Add(std::span<const int32_t> tokens, int64_t end) {
  int32_t& head = heads_[Slot(tokens.subspan(end - n_, n_))];
  before_[end] = head;
  head = static_cast<int32_t>(end);
}

void NgramIndex::Extend(std::span<const int32_t> tokens, int64_t most) {
  if (heads_.size() < tokens.size()) {
    heads_.assign(std::bit_ceil(tokens.size()), kNone);
    before_.clear();
  }
  int64_t end = std::max(std::ssize(before_), n_);  // the first that is new
  const int64_t last = std::min(std::ssize(tokens), end - 1 + most);
  if (end > last) return;
  before_.resize(last + 1, kNone);
  for (; end <= last; ++end) Add(tokens, end);
}

NgramDrafter::NgramDrafter(std::span<const int32_t> prediction, int64_t prompt,
                           std::shared_ptr<NgramIndices> predicted)
    : prediction_(prediction), prompt_(prompt), predicted_(std::move(predicted)), seen_(prompt) {
  next_.predicted = !prediction_.empty();
}

void NgramDrafter::Measure(std::span<const int32_t> tokens, Place& place) const {
  const std::span<const int32_t> text = TextOf(place, tokens);
  const auto count = std::ssize(tokens);
  place.length = 0;
  if (place.end >= std::ssize(text)) return;  // nothing follows
  const int64_t most = std::min({place.end, count, kLongestMatch});
  while (place.length < most &&
         text[place.end - 1 - place.length] == tokens[count - 1 - place.length]) {
    ++place.length;
  }
  // The output is the prediction so far.
  if (place.predicted && place.length == place.end && place.end == count - prompt_) {
    place.length = kLongestMatch;
  }
}

NgramDrafter::Place NgramDrafter::FindLongest(std::span<const int32_t> tokens) {
  const auto extend = [](NgramIndices& indices, std::span<const int32_t> text) {
    indices.longs.Extend(text, kMostAdded);
    indices.shorts.Extend(text, kMostAdded);
  };
  extend(*predicted_, prediction_);
  extend(own_, tokens.first(tokens.size() - 1));
  Place best = next_;
  Measure(tokens, best);
  const auto search = [&](const NgramIndex& index, bool predicted) {
    index.ForEach(tokens, [&](int64_t end) {
      Place place{.predicted = predicted, .end = end};
      Measure(tokens, place);
      // The hashes of other n-grams may be equal.
      if (place.length >= index.n() && place.length > best.length) best = place;
    });
  };
  if (best.length < kLongestMatch) {
    search(predicted_->longs, true);
    search(own_.longs, false);
  }
  if (best.length < NgramIndices::kLong) {
    search(predicted_->shorts, true);
    search(own_.shorts, false);
  }
  return best;
}

void NgramDrafter::Propose(std::span<const int32_t> tokens, int64_t most, Draft& draft) {
  next_.end += std::ssize(tokens) - seen_;
  seen_ = std::ssize(tokens);
  draft.tokens.clear();
  const Place place = FindLongest(tokens);
  if (place.length == 0) return;
  next_ = place;
  draft.strength = StrengthOf(place.length);
  const std::span<const int32_t> text = TextOf(place, tokens);
  for (int64_t i = place.end; i < place.end + most; ++i) {
    if (i < std::ssize(text)) {
      draft.tokens.push_back(text[i]);
    } else if (!place.predicted) {  // a text that repeats itself goes on in the draft
      draft.tokens.push_back(draft.tokens[i - std::ssize(text)]);
    } else {
      break;
    }
  }
}

}  // namespace triptych::serving
