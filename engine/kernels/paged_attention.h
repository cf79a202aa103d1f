// The hot loop of decoding: attention straight from the blocks of a paged cache.
#ifndef TRIPTYCH_ENGINE_KERNELS_PAGED_ATTENTION_H_
#define TRIPTYCH_ENGINE_KERNELS_PAGED_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "engine/kernels/thread_pool.h"

namespace triptych {

// New tokens of one sequence: queries at positions start to start + count - 1. Query i attends
// positions 0 to start + i.
struct PagedSequence {
  const int32_t* blocks;  // position p lives in row p % block_positions of blocks[p / ...]
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
  int64_t row_width;  // elements from one row to the next
};

// softmax(scale * q . k) v, with float32 arithmetic. `Row` is float or a 16-bit bfloat16.
//   q: token t's queries [heads, key_width] start at q + t * q_stride
//   cache: [blocks, block_positions, row_width]
//   out: [tokens, heads, value_width]
// Each output is summed in an order that depends on its own position only, so the result is
// independent of what else is in the batch and of the number of threads.
template <typename Row>
void PagedAttention(const float* q, int64_t q_stride, const Row* cache, int64_t block_positions,
                    const PagedRowLayout& layout, float scale,
                    const std::vector<PagedSequence>& sequences, float* out, ThreadPool& pool);

// Writes the rows of the sequences' new tokens, in the order of the tokens; under bfloat16 rounded
// to the nearest, ties to even.
//   rows: token t's row [row_width] starts at rows + t * rows_stride
//   cache: [blocks, block_positions, row_width]
template <typename Row>
void WritePagedRows(const float* rows, int64_t rows_stride, int64_t row_width,
                    int64_t block_positions, const std::vector<PagedSequence>& sequences,
                    Row* cache);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_KERNELS_PAGED_ATTENTION_H_
