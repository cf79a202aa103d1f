// Memory that is read from end to end.
#ifndef TRIPTYCH_ENGINE_KERNELS_LARGE_PAGES_H_
#define TRIPTYCH_ENGINE_KERNELS_LARGE_PAGES_H_

#include <cstddef>
#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace triptych {

// Asks for large pages, where they fit, before the memory is first written: whoever reads it once
// would otherwise wait for the page table.
inline void AdviseLargePages([[maybe_unused]] void* memory, [[maybe_unused]] size_t bytes) {
#if defined(__linux__)
  constexpr size_t kPage = size_t{1} << 12;
  const size_t skip = -reinterpret_cast<uintptr_t>(memory) % kPage;
  if (bytes > kPage + skip) {
    madvise(static_cast<std::byte*>(memory) + skip, bytes - skip, MADV_HUGEPAGE);
  }
#endif
}

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_KERNELS_LARGE_PAGES_H_
