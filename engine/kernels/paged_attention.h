// Attention over the blocks of a paged cache: the hot loop of serving.
#ifndef TRIPTYCH_ENGINE_KERNELS_PAGED_ATTENTION_H_
#define TRIPTYCH_ENGINE_KERNELS_PAGED_ATTENTION_H_

#include <cstdint>
#include <limits>
#include <span>

#include "engine/kernels/context.h"
#include "engine/kernels/paged_rows.h"

namespace triptych::kernels {

// Layout of a cache row: query head h reads group g = h mod groups, whose key is
// row[g * key_width ...] and whose value is row[value_offset + g * value_width ...]. Key and value
// may overlap: a latent serves as both.
struct PagedRowLayout {
  int64_t heads;
  int64_t groups;
  int64_t key_width;
  int64_t value_offset;
  int64_t value_width;
};

// Scores of a query q and the positions that it attends.
struct PagedScores {
  float scale = 1;    // a score is scale * q . k
  float softcap = 0;  // if positive, a score s becomes softcap * tanh(s / softcap)
  // Positions that a query attends: its own and those before it.
  int64_t window = std::numeric_limits<int64_t>::max();

  // The first position that a query at `position` attends.
  int64_t Begin(int64_t position) const { return position < window ? 0 : position - window + 1; }
};

// softmax(scores) v over rows that WritePagedRows wrote. The queries of a run are its
// tokens: query i attends positions scores.Begin(start + i) to start + i. Blocks that no query
// attends are not read, and their numbers may be any.
//   q: [tokens, heads, key_width], q_stride elements from one token to the next
//   out: [tokens, heads, value_width], out_stride elements from one token to the next
// A context is cut into splits of a fixed size, whose results are merged in order. The order of
// summation depends on a token's position only, so its result depends neither on the rest of the
// batch nor on the number of threads. REQUIRES, for that: the rows of its sequence's later tokens
// in the same call are finite, and so are earlier ones in the block of the first one attended.
// REQUIRES: if rows have wide numbers, there is one group; its key ends with them, and its value
// has none.
void PagedAttention(const float* q, int64_t q_stride, const PagedCache& cache,
                    const PagedRowLayout& layout, const PagedScores& scores,
                    std::span<const TokenRun> runs, float* out, int64_t out_stride,
                    KernelContext& context);

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_PAGED_ATTENTION_H_
