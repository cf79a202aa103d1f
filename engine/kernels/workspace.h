// Scratch memory of kernels, reused from step to step.
#ifndef TRIPTYCH_ENGINE_KERNELS_WORKSPACE_H_
#define TRIPTYCH_ENGINE_KERNELS_WORKSPACE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

#include "engine/base/ceil_div.h"

#if defined(__SANITIZE_ADDRESS__)
#define TRIPTYCH_WORKSPACE_POISONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TRIPTYCH_WORKSPACE_POISONS 1
#endif
#endif
#if defined(TRIPTYCH_WORKSPACE_POISONS)
#include <sanitizer/asan_interface.h>
#endif

namespace triptych::kernels {

// Buffers are taken in stack order: those taken within a Scope are released when it ends. Memory
// only grows; taking the same sizes in the same order again never allocates. For one thread at a
// time. AddressSanitizer detects accesses beyond a buffer and to released buffers.
class Workspace {
  // Start of the next buffer, if it fits there.
  struct Top {
    size_t block = 0;
    int64_t offset = 0;
  };

 public:
  class Scope {
   public:
    explicit Scope(Workspace& workspace) : workspace_(workspace), top_(workspace.top_) {}
    ~Scope() { workspace_.GiveBack(top_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Workspace& workspace_;
    Top top_;
  };

  // Returns `count` elements of any value, 64-byte aligned, valid until the innermost scope ends.
  // Throws std::bad_alloc. REQUIRES: a scope is open.
  template <typename T>
  T* Take(int64_t count) {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
    static_assert(alignof(T) <= kAlignment);
    return static_cast<T*>(TakeBytes(count * static_cast<int64_t>(sizeof(T))));
  }
  float* Floats(int64_t count) { return Take<float>(count); }

 private:
  static constexpr int64_t kAlignment = 64;
  static constexpr int64_t kLeastBlock = 1 << 16;
#if defined(TRIPTYCH_WORKSPACE_POISONS)
  static constexpr int64_t kGap = kAlignment;  // between buffers
  static void Poison(const void* bytes, int64_t count) {
    __asan_poison_memory_region(bytes, count);
  }
  static void Unpoison(const void* bytes, int64_t count) {
    __asan_unpoison_memory_region(bytes, count);
  }
#else
  static constexpr int64_t kGap = 0;
  static void Poison(const void*, int64_t) {}
  static void Unpoison(const void*, int64_t) {}
#endif

  struct Free {
    void operator()(std::byte* bytes) const {
      ::operator delete (bytes, std::align_val_t{kAlignment});
    }
  };
  struct Block {
    std::unique_ptr<std::byte, Free> bytes;
    int64_t size;
  };

  void* TakeBytes(int64_t count) {
    const int64_t reserved = CeilDiv(count, kAlignment) * kAlignment + kGap;
    while (top_.block < blocks_.size() && reserved > blocks_[top_.block].size - top_.offset) {
      top_ = {.block = top_.block + 1};
    }
    if (top_.block == blocks_.size()) Grow(reserved);
    std::byte* const bytes = blocks_[top_.block].bytes.get() + top_.offset;
    top_.offset += reserved;
    Unpoison(bytes, count);
    return bytes;
  }

  void GiveBack(const Top& top) {
    for (size_t i = top.block; i < blocks_.size() && i <= top_.block; ++i) {
      const int64_t begin = i == top.block ? top.offset : 0;
      Poison(blocks_[i].bytes.get() + begin, blocks_[i].size - begin);
    }
    top_ = top;
  }

  // Adds a block at least as large as all before it together, so that there are few.
  void Grow(int64_t least) {
    int64_t held = 0;
    for (const Block& block : blocks_) held += block.size;
    const int64_t size = std::max({least, held, kLeastBlock});
    void* const memory = ::operator new (size, std::align_val_t{kAlignment});
    Poison(memory, size);
    blocks_.push_back({std::unique_ptr<std::byte, Free>(static_cast<std::byte*>(memory)), size});
  }

  std::vector<Block> blocks_;
  Top top_;
};

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_WORKSPACE_H_
