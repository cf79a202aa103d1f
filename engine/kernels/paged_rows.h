// Row storage of one layer in a paged cache.
#ifndef TRIPTYCH_ENGINE_KERNELS_PAGED_ROWS_H_
#define TRIPTYCH_ENGINE_KERNELS_PAGED_ROWS_H_

#include <cstdint>
#include <span>

#include "engine/base/ceil_div.h"
#include "engine/base/formats.h"
#include "engine/kernels/context.h"

namespace triptych::kernels {

// Positions of a panel: adjacent positions of a block, which attention reads together. Attention is
// fastest if block_positions is a multiple of it.
inline constexpr int64_t kPanelPositions = 16;

// One layer's cache: [blocks, row_width, block_positions]. Within a block, element c of all
// positions is contiguous, so that one vector holds one element of many positions, as a key and as
// a value. With int8, a block's elements (for row_width rounded up to an even number) are followed
// by the positions' scales [groups of a row, block_positions]. Arithmetic is float32 in every
// format.
struct PagedCache {
  void* elements;
  CacheFormat format;
  int64_t row_width;  // elements of a row
  int64_t block_positions;

  int64_t block_bytes() const { return block_positions * RowBytes(format, row_width); }
  // Bytes from a block to its scales.
  int64_t scales_offset() const { return block_positions * CeilDiv(row_width, int64_t{2}) * 2; }
};

// Consecutive new tokens of one sequence, one or more: those at positions start to
// start + count - 1. A sequence may have several runs in one step.
struct TokenRun {
  // Position p of the sequence is in column p % block_positions of block
  // blocks[p / block_positions * stride].
  const int32_t* blocks;
  int64_t start;
  int64_t count;
  int64_t stride = 1;

  int64_t BlockOf(int64_t position, int64_t block_positions) const {
    return blocks[position / block_positions * stride];
  }
};

// Writes the rows of the runs' tokens, rounding to nearest, ties to even. Integers are -127 to 127.
// Their scale is the largest magnitude of their group divided by 127, rounded to bfloat16; zero if
// that magnitude is below 2^-100. A group with a non-finite number is NaN. REQUIRES: a sequence's
// positions are written in order, from 0 on.
//   rows: [tokens, row_width], rows_stride elements from one to the next
void WritePagedRows(const float* rows, int64_t rows_stride, std::span<const TokenRun> runs,
                    const PagedCache& cache, KernelContext& context);

// Reads the rows of a run's positions.
//   rows: [count, row_width]
void ReadPagedRows(const PagedCache& cache, const TokenRun& run, float* rows);

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_PAGED_ROWS_H_
