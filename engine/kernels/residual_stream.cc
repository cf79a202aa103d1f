#include "engine/kernels/residual_stream.h"

// Compiled once for each instruction set; the best one is chosen at run time.
#include "engine/kernels/instruction_sets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/residual_stream.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "engine/base/ceil_div.h"
#include "engine/kernels/elements.h"
#include "engine/kernels/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace triptych::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::ScalableTag<float>;

template <typename Element>
void CopyOrAdd(const Element* x, int64_t count, bool add, float* y) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(add ? hn::Add(hn::LoadU(d, y + i), LoadFloats(d, x + i)) : LoadFloats(d, x + i), d,
               y + i);
  }
  for (; i < count; ++i) y[i] = add ? y[i] + ToFloat(x[i]) : ToFloat(x[i]);
}

void CopyOrAddFloat(const float* x, int64_t count, bool add, float* y) {
  CopyOrAdd(x, count, add, y);
}
void CopyOrAddBFloat16(const uint16_t* x, int64_t count, bool add, float* y) {
  CopyOrAdd(x, count, add, y);
}

void AddWeighted(const float* x, float weight, int64_t count, float* y) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, weight);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::MulAdd(factor, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  }
  for (; i < count; ++i) y[i] += weight * x[i];
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace triptych::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace triptych::kernels {
namespace {

HWY_EXPORT(CopyOrAddFloat);
HWY_EXPORT(CopyOrAddBFloat16);
HWY_EXPORT(AddWeighted);

auto Dispatch(const float*) { return HWY_DYNAMIC_DISPATCH(CopyOrAddFloat); }
auto Dispatch(const uint16_t*) { return HWY_DYNAMIC_DISPATCH(CopyOrAddBFloat16); }

void CopyOrAddRows(TensorFormat format, const void* table, const int64_t* indices, int64_t rows,
                   int64_t width, bool add, float* y, KernelContext& context) {
  VisitElements(format, table, [&](const auto* elements) {
    const auto copy_or_add = Dispatch(elements);
    context.pool.ForEach(rows, rows * width, [&](int64_t row) {
      copy_or_add(elements + indices[row] * width, width, add, y + row * width);
    });
  });
}

}  // namespace

void CopyRows(TensorFormat format, const void* table, const int64_t* indices, int64_t rows,
              int64_t width, float* y, KernelContext& context) {
  CopyOrAddRows(format, table, indices, rows, width, /*add=*/false, y, context);
}

void AddRows(TensorFormat format, const void* table, const int64_t* indices, int64_t rows,
             int64_t width, float* y, KernelContext& context) {
  CopyOrAddRows(format, table, indices, rows, width, /*add=*/true, y, context);
}

void Add(const float* x, int64_t count, float* y, KernelContext& context) {
  const auto add = HWY_DYNAMIC_DISPATCH(CopyOrAddFloat);
  const int64_t tasks = context.pool.TaskCount(count);
  context.pool.Run(tasks, [&](int64_t task) {
    const int64_t first = count * task / tasks;
    add(x + first, count * (task + 1) / tasks - first, /*add=*/true, y + first);
  });
}

void AddWeightedRows(const float* x, const int64_t* to, const float* weights, int64_t rows,
                     int64_t width, float* y, KernelContext& context) {
  constexpr int64_t kPart = 64;  // elements; whole vectors, so that all parts' tails are the row's
  const auto add = HWY_DYNAMIC_DISPATCH(AddWeighted);
  const int64_t parts = CeilDiv(width, kPart);
  const int64_t tasks = std::min(parts, context.pool.TaskCount(rows * width));
  context.pool.Run(tasks, [&](int64_t task) {
    const int64_t first = parts * task / tasks * kPart;
    const int64_t end = std::min(parts * (task + 1) / tasks * kPart, width);
    for (int64_t i = 0; i < rows; ++i) {
      add(x + i * width + first, weights[i], end - first, y + to[i] * width + first);
    }
  });
}

}  // namespace triptych::kernels
#endif  // HWY_ONCE
