// The arithmetic of paged attention, in vector instructions: some queries against one split of a
// context.
#ifndef TRIPTYCH_ENGINE_KERNELS_ATTENTION_TILES_H_
#define TRIPTYCH_ENGINE_KERNELS_ATTENTION_TILES_H_

#include <cstdint>

#include "engine/kernels/paged_rows.h"

namespace triptych::kernels {

// Panels of a split, which is as much of a context as is attended at a time.
inline constexpr int64_t kSplitPanels = 16;
inline constexpr int64_t kSplitPositions = kSplitPanels * kPanelPositions;
// Queries that read a split together, at most.
inline constexpr int64_t kSplitQueries = 32;
// Panels that are read side by side, at most.
inline constexpr int64_t kStreams = 8;

// Some queries of consecutive groups against the positions of one split. `Element` is float,
// uint16_t that holds the bits of a bfloat16, or int8_t.
template <typename Element>
struct AttentionSplit {
  int64_t groups;
  int64_t queries;         // of each group; groups * queries <= kSplitQueries
  const float* q;          // [groups, queries, key_width], scaled, by log2(e) too
  const int64_t* visible;  // [queries]: how many of the positions each sees, 1 to kSplitPositions
  int64_t panels;          // as many as any query sees
  // [panels] -> [groups, key_width, stride], of which kPanelPositions are read
  const Element* const* keys;
  // [panels] -> [groups, value_width, stride]. In memory these pointers follow those of the keys,
  // and are followed by those of kStreams panels that are fetched while the last ones are read.
  const Element* const* values;
  // Under int8 alone: [panels, and those kStreams] -> the scales of whole rows, [groups of a row,
  // stride], and the elements of a row before the keys and before the values.
  const uint16_t* const* scales;
  int64_t key_offset;
  int64_t value_offset;
  float* scaled;  // under int8: [queries, kSplitPositions], scratch
  int64_t stride;
  int64_t key_width;
  int64_t value_width;
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

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_ATTENTION_TILES_H_
