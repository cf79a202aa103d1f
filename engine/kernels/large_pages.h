// Memory in large pages, if the system has them. Reading small pages from end to end would wait for
// the page table.
#ifndef TRIPTYCH_ENGINE_KERNELS_LARGE_PAGES_H_
#define TRIPTYCH_ENGINE_KERNELS_LARGE_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace triptych::kernels {

// Asks for large pages where they fit. Has an effect only before the memory is first written.
inline void AdviseLargePages([[maybe_unused]] void* memory, [[maybe_unused]] size_t bytes) {
#if defined(__linux__)
  constexpr size_t kPage = size_t{1} << 12;
  const size_t skip = -reinterpret_cast<uintptr_t>(memory) % kPage;
  if (bytes > kPage + skip) {
    madvise(static_cast<std::byte*>(memory) + skip, bytes - skip, MADV_HUGEPAGE);
  }
#endif
}

// Owns zeroed, 64-byte aligned memory in new pages: memory from an allocator may already be in
// small pages, which would stay.
class LargePages {
 public:
  LargePages() = default;
  // Throws std::bad_alloc.
  explicit LargePages(size_t bytes) {
#if defined(__linux__)
    constexpr size_t kLargePage = size_t{1} << 21;
    // Round up to whole large pages if that adds little; align the first one if there is one.
    const size_t tail = -bytes % kLargePage;
    if (tail <= bytes / 8) bytes += tail;
    mapped_bytes_ = bytes + (bytes >= kLargePage ? kLargePage : 0);
    mapped_ =
        mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped_ == MAP_FAILED) {
      mapped_ = nullptr;
      throw std::bad_alloc();
    }
    data_ = static_cast<std::byte*>(mapped_);
    if (bytes >= kLargePage) data_ += -reinterpret_cast<uintptr_t>(data_) % kLargePage;
    AdviseLargePages(data_, bytes);
#else
    data_ = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}));
    std::memset(data_, 0, bytes);
#endif
  }
  LargePages(LargePages&& other) noexcept { *this = std::move(other); }
  LargePages& operator=(LargePages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(mapped_, other.mapped_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    return *this;
  }
  ~LargePages() {
#if defined(__linux__)
    if (mapped_ != nullptr) munmap(mapped_, mapped_bytes_);
#else
    ::operator delete (data_, std::align_val_t{64});
#endif
  }

  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  void* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
};

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_LARGE_PAGES_H_
