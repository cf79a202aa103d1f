// Software prefetch.
#ifndef TRIPTYCH_ENGINE_KERNELS_PREFETCH_H_
#define TRIPTYCH_ENGINE_KERNELS_PREFETCH_H_

#include <cstdint>

namespace triptych::kernels {

inline constexpr int64_t kLineBytes = 64;  // bytes of a cache line

// Prefetches the cache line `bytes` beyond p into L2, as L1 is too small for data that is read
// later. The address may be outside of any object.
[[gnu::always_inline]] inline void Prefetch(const void* p, int64_t bytes) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(bytes);
  __builtin_prefetch(reinterpret_cast<const void*>(address), 0, 2);
}

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_PREFETCH_H_
