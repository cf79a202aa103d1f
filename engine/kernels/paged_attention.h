// The hot loop of serving: attention straight from the blocks of a paged cache.
#ifndef TRIPTYCH_ENGINE_KERNELS_PAGED_ATTENTION_H_
#define TRIPTYCH_ENGINE_KERNELS_PAGED_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "engine/kernels/thread_pool.h"

namespace triptych {

// A cache is [blocks, row_width, block_positions]: within a block, element c of all its positions'
// rows lie side by side, so that one vector holds one element of many positions, as a key and as a
// value. `Row` is float or a 16-bit bfloat16; arithmetic is float32. Fastest where block_positions
// is a multiple of 16.

// New tokens of one sequence, one or more: queries at positions start to start + count - 1. Query i
// attends positions 0 to start + i.
struct PagedSequence {
  const int32_t* blocks;  // position p lives in column p % block_positions of blocks[p / ...]
  int64_t start;
  int64_t count;
};

// How a cache row is read: query head h reads group g = h mod groups, whose key is
// row[g * key_width ...] and whose value is row[value_offset + g * value_width ...]. Key and value
// may overlap: a latent serves as both.
struct PagedRowLayout {
  int64_t heads;
  int64_t groups;
  int64_t key_width;
  int64_t value_offset;
  int64_t value_width;
  int64_t row_width;  // elements of a row
};

// Writes the rows of the sequences' new tokens, rounding to nearest, ties to even. A sequence's
// positions are written in order, from 0 on.
//   rows: [tokens, row_width], rows_stride elements from one to the next
template <typename Row>
void WritePagedRows(const float* rows, int64_t rows_stride, int64_t row_width,
                    int64_t block_positions, const std::vector<PagedSequence>& sequences,
                    Row* cache, ThreadPool& pool);

// Reads the rows of positions 0 to length - 1.
//   rows: [length, row_width]
template <typename Row>
void ReadPagedRows(const Row* cache, int64_t row_width, int64_t block_positions,
                   const int32_t* blocks, int64_t length, float* rows);

// softmax(scale * q . k) v over rows that WritePagedRows wrote.
//   q: [tokens, heads, key_width], q_stride elements from one token to the next
//   out: [tokens, heads, value_width], out_stride elements from one token to the next
// A context is cut into splits of a fixed size, whose results are merged in order: each output is
// summed in an order that depends on its own position only, so the result is independent of what
// else is in the batch and of the number of threads, while the rows of its sequence's later tokens
// in the same call are finite.
template <typename Row>
void PagedAttention(const float* q, int64_t q_stride, const Row* cache, int64_t block_positions,
                    const PagedRowLayout& layout, float scale,
                    const std::vector<PagedSequence>& sequences, float* out, int64_t out_stride,
                    ThreadPool& pool);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_KERNELS_PAGED_ATTENTION_H_
