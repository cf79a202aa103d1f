// Vectorised core of paged attention: queries against one split of a context.
#ifndef TRIPTYCH_ENGINE_KERNELS_ATTENTION_TILES_H_
#define TRIPTYCH_ENGINE_KERNELS_ATTENTION_TILES_H_

#include <cstdint>

#include "engine/kernels/elements.h"
#include "engine/kernels/paged_rows.h"

namespace triptych::kernels {

// Panels of a split: the part of a context that is attended at a time.
inline constexpr int64_t kSplitPanels = 16;
inline constexpr int64_t kSplitPositions = kSplitPanels * kPanelPositions;
// Most queries that attend a split together.
inline constexpr int64_t kSplitQueries = 32;
// Most panels that are read side by side.
inline constexpr int64_t kStreams = 8;

// Queries of consecutive groups against the positions of one split. `Element` is float, uint16_t
// (the bits of a bfloat16), int8_t or Int4Pair.
template <typename Element>
struct AttentionSplit {
  int64_t groups;
  int64_t queries;  // of each group; groups * queries <= kSplitQueries
  const float* q;   // [groups, queries, key_width], scaled, including by log2(e)
  // [queries]: each attends positions hidden to visible - 1 of the split, at least one. Both rise.
  const int64_t* hidden;
  const int64_t* visible;
  int64_t panels;  // that hold all visible positions
  // [panels] -> [groups, key_width, stride] numbers, of which kPanelPositions are read
  const Element* const* keys;
  // [panels] -> [groups, value_width, stride]. These pointers follow those of the keys in
  // memory. kStreams more follow them: panels to prefetch while the last ones are read.
  const Element* const* values;
  // Integers only: [panels + kStreams] -> the scales of whole rows, [groups of a row, stride]; and
  // the numbers of a row's elements before the keys and before the values.
  const uint16_t* const* scales;
  int64_t key_offset;
  int64_t value_offset;
  float* scaled;   // integers only: [queries, kSplitPositions], scratch
  int64_t stride;  // in positions
  int64_t key_width;
  int64_t value_width;
  // [groups, queries] -> [kSplitPositions]: the inverse norm that multiplies the score with each
  // position; or null.
  const float* const* inverse_norms;
  // If positive, a product q . k, which is then scaled by 1 / cap, becomes the score softcap *
  // tanh(q . k): softcap is the cap times log2(e).
  float softcap;
  float* scores;      // [groups, queries, kSplitPositions], scratch
  float* sums;        // [groups, queries, value_width, kPanelPositions], scratch
  float* max;         // [groups, queries]: the largest score
  float* sum;         // [groups, queries]: the sum of 2^(score - max)
  float* const* out;  // [groups, queries] -> [value_width]: the sum of 2^(score - max) value
};

// Fills max, sum and out.
void AttendSplit(const AttentionSplit<float>& split);
void AttendSplit(const AttentionSplit<uint16_t>& split);
void AttendSplit(const AttentionSplit<int8_t>& split);
void AttendSplit(const AttentionSplit<Int4Pair>& split);

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_ATTENTION_TILES_H_
