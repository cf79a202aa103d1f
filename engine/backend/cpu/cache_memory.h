// Memory of a paged KV cache on the CPU.
#ifndef TRIPTYCH_ENGINE_BACKEND_CPU_CACHE_MEMORY_H_
#define TRIPTYCH_ENGINE_BACKEND_CPU_CACHE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "engine/kernels/large_pages.h"
#include "engine/kernels/paged_attention.h"

namespace triptych::cpu {

// Cache rows of every layer, of any value until they are written. All memory is committed on
// construction. Only the attention layer that wrote a row interprets it.
class CacheMemory {
 public:
  // `layers` have no elements yet. Throws std::bad_alloc.
  CacheMemory(int64_t blocks, std::vector<kernels::PagedCache> layers)
      : layers_(std::move(layers)) {
    for (kernels::PagedCache& layer : layers_) {
      const int64_t bytes = blocks * layer.block_bytes();
      std::byte* const memory = static_cast<std::byte*>(::operator new(bytes, kAlignment));
      memory_.emplace_back(memory);
      kernels::AdviseLargePages(memory, bytes);
      // Touch every page now: a system that overcommits memory may kill the process on a later
      // first write.
      constexpr int64_t kPage = 4096;
      for (int64_t at = 0; at < bytes; at += kPage) memory[at] = std::byte{0};
      layer.elements = memory;
      bytes_ += bytes;
    }
  }

  const kernels::PagedCache& layer(int64_t index) const { return layers_.at(index); }
  int64_t bytes() const { return bytes_; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
  };

  std::vector<std::unique_ptr<std::byte, Free>> memory_;
  std::vector<kernels::PagedCache> layers_;
  int64_t bytes_ = 0;
};

}  // namespace triptych::cpu

#endif  // TRIPTYCH_ENGINE_BACKEND_CPU_CACHE_MEMORY_H_
