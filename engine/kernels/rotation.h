// Kernel of rotary position embedding, in place (Su et al. 2021, arXiv:2104.09864).
#ifndef TRIPTYCH_ENGINE_KERNELS_ROTATION_H_
#define TRIPTYCH_ENGINE_KERNELS_ROTATION_H_

#include <cstdint>

#include "engine/kernels/context.h"

namespace triptych::kernels {

// Places of the rotated elements: `dim` in each head of each row, in pairs (2i, 2i+1).
struct RotatedHeads {
  int64_t heads;
  int64_t dim;          // even
  int64_t head_stride;  // elements from one head to the next
  int64_t row_stride;   // elements from one row to the next
};

// Rotates row i by the angles of positions[i]. On one instruction set an element's result depends
// on its pair and its angle only.
//   table: [positions, 2, dim / 2]: the cosines of the pairs' angles, then their sines
//   x: the first rotated element of the first row
void RotateHeads(const float* table, const int64_t* positions, int64_t rows,
                 const RotatedHeads& where, float* x, KernelContext& context);

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_ROTATION_H_
