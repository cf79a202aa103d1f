// The free list of a paged cache: which blocks are held. Torch-free, not thread-safe.
#ifndef TRIPTYCH_ENGINE_KV_CACHE_BLOCK_POOL_H_
#define TRIPTYCH_ENGINE_KV_CACHE_BLOCK_POOL_H_

#include <cstdint>
#include <vector>

namespace triptych {

// Blocks are 0 to total - 1, allocated lowest first from a fresh pool; then those released last are
// allocated first.
//
// Invariants: every block is free or held once; peak_used() never falls.
class BlockPool {
 public:
  explicit BlockPool(int64_t blocks);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Appends `count` blocks to `out`, or changes nothing and returns false if fewer are free.
  bool Allocate(int64_t count, std::vector<int32_t>& out);
  // REQUIRES: every block was allocated and not yet released.
  void Release(const std::vector<int32_t>& blocks);

  int64_t total() const { return total_; }
  int64_t free() const { return static_cast<int64_t>(free_.size()); }
  int64_t used() const { return total_ - free(); }
  int64_t peak_used() const { return peak_used_; }

 private:
  int64_t total_;
  int64_t peak_used_ = 0;
  std::vector<int32_t> free_;  // the next one to take is last
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_KV_CACHE_BLOCK_POOL_H_
