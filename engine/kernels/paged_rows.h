// Row storage of one layer in a paged cache.
#ifndef TRIPTYCH_ENGINE_KERNELS_PAGED_ROWS_H_
#define TRIPTYCH_ENGINE_KERNELS_PAGED_ROWS_H_

#include <cstdint>
#include <span>

#include "engine/base/ceil_div.h"
#include "engine/base/formats.h"
#include "engine/kernels/context.h"
#include "engine/kernels/elements.h"

namespace triptych::kernels {

// Positions of a panel: adjacent positions of a block, which attention reads together. Attention is
// fastest if block_positions is a multiple of it.
inline constexpr int64_t kPanelPositions = 16;

// One layer's cache: [blocks, stored_elements, block_positions]. Within a block, element c of all
// positions is contiguous, so that one vector holds one element of many positions, as a key and as
// a value. With int8 and int4, a block's elements (padded to an even number of bytes per row) are
// followed by the positions' scales [groups of a row, block_positions]. Int4Place gives the order
// of int4. Inverse norms of keys, if rows have them, are last, in float32: [inverse_norms,
// block_positions], at any address. Arithmetic is float32 in every format.
struct PagedCache {
  void* elements;
  CacheFormat format;
  int64_t row_width;  // numbers of a row
  int64_t block_positions;
  // Numbers that are multiplied by a Hadamard matrix before they are rounded (CacheRotation). It
  // divides 2 wide, and the offset and width of every key and value without wide numbers.
  int64_t rotation = 1;
  // Numbers at the end of a row that kInt4 stores in 8 bits: as elements h and l, of the value
  // scale * (h + l / kWideSteps). They are not rotated, and stored before the row's other numbers.
  int64_t wide = 0;
  // Numbers of a row besides its elements: query head h multiplies its score by number h mod
  // inverse_norms. 0: there are none.
  int64_t inverse_norms = 0;

  int64_t stored_elements() const { return row_width + wide; }
  int64_t block_bytes() const {
    return inverse_norms_offset() +
           block_positions * inverse_norms * static_cast<int64_t>(sizeof(float));
  }
  // Bytes from a block to its inverse norms.
  int64_t inverse_norms_offset() const {
    return block_positions * RowBytes(format, stored_elements());
  }
  // Bytes from a block to its scales. REQUIRES: an integer format.
  int64_t scales_offset() const {
    return inverse_norms_offset() -
           block_positions * 2 * CeilDiv(stored_elements(), kQuantizationGroup);
  }
};

// Where the int4 of a column of a block is among those of one element, in half bytes. A panel's
// positions alternate between its first and its last four bytes, so that shifts alone bring them
// into the lanes of a vector.
constexpr int64_t Int4Place(int64_t column, int64_t block_positions) {
  if (block_positions % kPanelPositions != 0) return column;
  const int64_t position = column % kPanelPositions;
  return column - position + position % 2 * (kPanelPositions / 2) + position / 2;
}

// Element c of the row in a column of a block, in a format of integers, without its scale.
inline int64_t IntegerAt(const int8_t* block, int64_t c, int64_t column, int64_t block_positions) {
  return block[c * block_positions + column];
}
inline int64_t IntegerAt(const Int4Pair* block, int64_t c, int64_t column,
                         int64_t block_positions) {
  const int64_t place = c * block_positions + Int4Place(column, block_positions);
  const int64_t bits = block[place / 2].bits >> place % 2 * 4 & 15;
  return bits < 8 ? bits : bits - 16;
}

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

// Writes the rows of the runs' tokens, rounding to nearest, ties to even. Integers are -127 to 127,
// or -7 to 7. Their scale is the largest magnitude of their group divided by 127, or 7, rounded to
// bfloat16; zero if that magnitude is below 2^-100. A group with a non-finite number is NaN. Wide
// numbers are rounded to 1 / kWideSteps of the scale: -7 to 7 in h, and -8 to 7 in l.
// REQUIRES: a sequence's positions are written in order, from 0 on.
//   rows: [tokens, row_width + inverse_norms], rows_stride elements from one to the next
void WritePagedRows(const float* rows, int64_t rows_stride, std::span<const TokenRun> runs,
                    const PagedCache& cache, KernelContext& context);

// Reads the rows of a run's positions, as they were before their rotation.
//   rows: [count, row_width]
void ReadPagedRows(const PagedCache& cache, const TokenRun& run, float* rows);

// Reads the inverse norms of a run's positions.
//   norms: [inverse_norms, count], norms_stride numbers from one norm to the next
void ReadInverseNorms(const PagedCache& cache, const TokenRun& run, float* norms,
                      int64_t norms_stride);

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_PAGED_ROWS_H_
