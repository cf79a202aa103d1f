// The blocks of one sequence, in order of position.
//
// Not thread-safe.
#ifndef TRIPTYCH_ENGINE_KV_CACHE_BLOCK_TABLE_H_
#define TRIPTYCH_ENGINE_KV_CACHE_BLOCK_TABLE_H_

#include <cstdint>
#include <vector>

#include "engine/kv_cache/block_pool.h"

namespace triptych {

// Owns one reference to each of its blocks, and releases them in its destructor. The pool must
// outlive it.
class BlockTable {
 public:
  BlockTable(BlockPool& pool, int64_t block_positions)
      : pool_(&pool), block_positions_(block_positions) {}
  ~BlockTable() { Release(); }
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  // Allocates blocks until the table covers at least `positions` positions. If the pool has too
  // few, changes nothing and returns false. Never shrinks.
  bool Grow(int64_t positions);
  // Appends an allocated or evictable block.
  void Share(int32_t block);
  // Replaces the block at `index` by `block`, which is allocated or evictable and has the same
  // rows.
  void Replace(int64_t index, int32_t block);
  // Releases every block. The peak stays.
  void Release();

  // Position p lives in column p % block_positions of blocks()[p / block_positions].
  const std::vector<int32_t>& blocks() const { return blocks_; }
  int64_t size() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t peak_size() const { return peak_size_; }
  // The number of blocks that other tables refer to as well. REQUIRES: they come first, which holds
  // if only full blocks behind equal ones are shared.
  int64_t shared() const;

 private:
  BlockPool* pool_;
  int64_t block_positions_;
  int64_t peak_size_ = 0;
  std::vector<int32_t> blocks_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_KV_CACHE_BLOCK_TABLE_H_
