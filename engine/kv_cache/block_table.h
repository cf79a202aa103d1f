// The blocks of one sequence, in order of position. Torch-free, not thread-safe.
#ifndef TRIPTYCH_ENGINE_KV_CACHE_BLOCK_TABLE_H_
#define TRIPTYCH_ENGINE_KV_CACHE_BLOCK_TABLE_H_

#include <cstdint>
#include <vector>

#include "engine/kv_cache/block_pool.h"

namespace triptych {

// Holds its blocks, each once, and releases them when it dies. The pool must outlive it.
class BlockTable {
 public:
  BlockTable(BlockPool& pool, int64_t block_positions)
      : pool_(&pool), block_positions_(block_positions) {}
  ~BlockTable() { Release(); }
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  // Holds blocks for at least `positions` positions, or changes nothing and returns false if the
  // pool has too few. Never shrinks.
  bool Reserve(int64_t positions);
  // Appends a block that is held or cached.
  void Share(int32_t block);
  // Holds `block`, which is held or cached and has the same rows, instead of the one at `index`.
  void Replace(int64_t index, int32_t block);
  // Gives every block back. The peak stays.
  void Release();

  // Position p lives in column p % block_positions of blocks()[p / block_positions].
  const std::vector<int32_t>& blocks() const { return blocks_; }
  int64_t size() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t peak_size() const { return peak_size_; }
  // How many of the blocks are held by others too. REQUIRES: these come first, as they do where
  // only full blocks with equal ones before them are shared.
  int64_t shared() const;

 private:
  BlockPool* pool_;
  int64_t block_positions_;
  int64_t peak_size_ = 0;
  std::vector<int32_t> blocks_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_KV_CACHE_BLOCK_TABLE_H_
