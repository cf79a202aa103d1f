#include "engine/kernels/rotation.h"

#include <algorithm>

// Compiled once for each instruction set; the best one is chosen at run time.
#include "engine/kernels/instruction_sets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/rotation.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace triptych::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::CappedTag<float, 8>;
using FloatVec = hn::Vec<FloatTag>;

// Rotates one vector of pairs.
HWY_INLINE void RotatePairs(const float* cosines, const float* sines, float* x) {
  const FloatTag d;
  const FloatVec cosine = hn::LoadU(d, cosines), sine = hn::LoadU(d, sines);
  FloatVec even, odd;
  hn::LoadInterleaved2(d, x, even, odd);
  hn::StoreInterleaved2(hn::NegMulAdd(odd, sine, hn::Mul(even, cosine)),
                        hn::MulAdd(odd, cosine, hn::Mul(even, sine)), d, x);
}

// Rotates one row.
//   x: [heads, 2 * pairs], head_stride elements from one head to the next
void RotateRow(const float* cosines, const float* sines, int64_t heads, int64_t pairs,
               int64_t head_stride, float* x) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(FloatTag()));
  const int64_t whole = pairs / lanes * lanes, rest = pairs - whole;
  // Zero-padded copies of the last pairs, which are computed by the same instructions as all
  // others.
  float last_cosines[8] = {}, last_sines[8] = {}, last[16] = {};
  std::copy_n(cosines + whole, rest, last_cosines);
  std::copy_n(sines + whole, rest, last_sines);
  for (int64_t head = 0; head < heads; ++head, x += head_stride) {
    for (int64_t i = 0; i < whole; i += lanes) RotatePairs(cosines + i, sines + i, x + 2 * i);
    if (rest == 0) continue;
    std::copy_n(x + 2 * whole, 2 * rest, last);
    RotatePairs(last_cosines, last_sines, last);
    std::copy_n(last, 2 * rest, x + 2 * whole);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace triptych::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace triptych::kernels {
namespace {

HWY_EXPORT(RotateRow);

}  // namespace

void RotateHeads(const float* table, const int64_t* positions, int64_t rows,
                 const RotatedHeads& where, float* x, KernelContext& context) {
  const int64_t pairs = where.dim / 2;
  context.pool.ForEach(rows, rows * where.heads * where.dim, [&](int64_t row) {
    const float* cosines = table + positions[row] * 2 * pairs;
    HWY_DYNAMIC_DISPATCH(RotateRow)
    (cosines, cosines + pairs, where.heads, pairs, where.head_stride, x + row * where.row_stride);
  });
}

}  // namespace triptych::kernels
#endif  // HWY_ONCE
