// The blocks of one sequence, in order of position.
//
// Not thread-safe.
#ifndef TRIPTYCH_ENGINE_KV_CACHE_BLOCK_TABLE_H_
#define TRIPTYCH_ENGINE_KV_CACHE_BLOCK_TABLE_H_

#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "engine/kv_cache/block_pool.h"
#include "engine/kv_cache/geometry.h"

namespace triptych {

// Owns one reference to each of its blocks, and releases them in its destructor. Covers positions
// by one block of each group. The pool must outlive it.
class BlockTable {
 public:
  static constexpr int32_t kNone = -1;  // a windowed group's block that was given back

  BlockTable(BlockPool& pool, int64_t block_positions, const LayerGroups& groups = {})
      : pool_(&pool), block_positions_(block_positions), groups_(groups) {}
  ~BlockTable() { Release(); }
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  // Allocates blocks until the table covers at least `positions` positions. If the pool has too
  // few, changes nothing and returns false.
  bool Grow(int64_t positions);
  // Appends allocated or evictable blocks, one of each group. Those of windowed groups may all be
  // kNone: these groups then give back their earlier blocks, too.
  void Share(std::span<const int32_t> blocks);
  // Replaces a group's block at `index` by `block`, which is allocated or evictable and has the
  // same rows.
  void Replace(int64_t index, int64_t group, int32_t block);
  // Releases the windowed groups' blocks before `index`, the first one first. REQUIRES: index <=
  // length().
  void Drop(int64_t index);
  // Releases the blocks beyond those of the first `positions` positions, the last one first.
  // REQUIRES: the windowed groups hold blocks of all of these.
  void Shrink(int64_t positions);
  // Releases every block. The peak stays.
  void Release();

  // Position p of group g lives in column p % block_positions of
  // blocks()[p / block_positions * groups + g].
  const std::vector<int32_t>& blocks() const { return blocks_; }
  int64_t length() const { return std::ssize(blocks_) / groups_.count(); }  // blocks of a group
  int64_t dropped() const { return dropped_; }  // blocks that each windowed group has given back
  int64_t size() const {
    return std::ssize(blocks_) - groups_.windowed * dropped_;
  }  // of all groups
  int64_t peak_size() const { return peak_size_; }
  // The number of blocks that other tables refer to as well.
  int64_t shared() const;

 private:
  BlockPool* pool_;
  int64_t block_positions_;
  LayerGroups groups_;
  int64_t dropped_ = 0;
  int64_t peak_size_ = 0;
  std::vector<int32_t> blocks_;  // [length, groups]
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_KV_CACHE_BLOCK_TABLE_H_
