#include "engine/kernels/residual_stream.h"

// Compiled once for each instruction set; the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/residual_stream.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace triptych {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::ScalableTag<float>;

template <typename Row>
void CopyOrAdd(const Row* x, int64_t count, bool add, float* y) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(add ? hn::Add(hn::LoadU(d, y + i), LoadFloats(d, x + i)) : LoadFloats(d, x + i), d,
               y + i);
  }
  for (; i < count; ++i) y[i] = add ? y[i] + LoadFloat(x + i) : LoadFloat(x + i);
}

void CopyOrAddFloat(const float* x, int64_t count, bool add, float* y) {
  CopyOrAdd(x, count, add, y);
}
void CopyOrAddBFloat16(const uint16_t* x, int64_t count, bool add, float* y) {
  CopyOrAdd(x, count, add, y);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace triptych
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace triptych {
namespace {

HWY_EXPORT(CopyOrAddFloat);
HWY_EXPORT(CopyOrAddBFloat16);

auto Dispatch(const float*) { return HWY_DYNAMIC_DISPATCH(CopyOrAddFloat); }
auto Dispatch(const uint16_t*) { return HWY_DYNAMIC_DISPATCH(CopyOrAddBFloat16); }

template <typename Row>
void CopyOrAddRows(const Row* table, const int64_t* indices, int64_t rows, int64_t width, bool add,
                   float* y, ThreadPool& pool) {
  const auto copy_or_add = Dispatch(table);
  pool.ForEach(rows, rows * width, [&](int64_t row) {
    copy_or_add(table + indices[row] * width, width, add, y + row * width);
  });
}

}  // namespace

template <typename Row>
void CopyRows(const Row* table, const int64_t* indices, int64_t rows, int64_t width, float* y,
              ThreadPool& pool) {
  CopyOrAddRows(table, indices, rows, width, /*add=*/false, y, pool);
}

template <typename Row>
void AddRows(const Row* table, const int64_t* indices, int64_t rows, int64_t width, float* y,
             ThreadPool& pool) {
  CopyOrAddRows(table, indices, rows, width, /*add=*/true, y, pool);
}

void Add(const float* x, int64_t count, float* y, ThreadPool& pool) {
  const auto add = HWY_DYNAMIC_DISPATCH(CopyOrAddFloat);
  const int64_t tasks = pool.TasksWorth(count);
  pool.Run(tasks, [&](int64_t task) {
    const int64_t first = count * task / tasks;
    add(x + first, count * (task + 1) / tasks - first, /*add=*/true, y + first);
  });
}

template void CopyRows(const float*, const int64_t*, int64_t, int64_t, float*, ThreadPool&);
template void CopyRows(const uint16_t*, const int64_t*, int64_t, int64_t, float*, ThreadPool&);
template void AddRows(const float*, const int64_t*, int64_t, int64_t, float*, ThreadPool&);
template void AddRows(const uint16_t*, const int64_t*, int64_t, int64_t, float*, ThreadPool&);

}  // namespace triptych
#endif  // HWY_ONCE
