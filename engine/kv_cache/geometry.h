// Byte accounting of a paged KV cache.
#ifndef TRIPTYCH_ENGINE_KV_CACHE_GEOMETRY_H_
#define TRIPTYCH_ENGINE_KV_CACHE_GEOMETRY_H_

#include <cstdint>
#include <iterator>
#include <vector>

namespace triptych {

// Cache bytes of one sequence. A position has a row in every layer; layers with a window give the
// blocks of rows that no later position attends back.
struct KvCacheUsage {
  int64_t positions = 0;
  int64_t bytes_per_position = 0;    // of a new position
  int64_t used_bytes = 0;            // of the rows in its blocks; see CacheGeometry::Usage
  int64_t allocated_bytes = 0;       // including the unused tail of the last block
  int64_t peak_allocated_bytes = 0;  // maximum so far; kept after release
  int64_t mha_used_bytes = 0;        // the same positions if every layer were MHA
  int64_t shared_bytes = 0;          // part of allocated_bytes: blocks of other sequences too
  int64_t own_bytes = 0;             // the rest of allocated_bytes
};

// Groups of layers whose blocks are allocated apart. Groups of full layers, which attend all
// positions, come first; then those of layers with a window.
struct LayerGroups {
  int64_t full = 1;
  int64_t windowed = 0;
  int64_t window = 0;  // positions that a query of a windowed layer attends

  int64_t count() const { return full + windowed; }
  // The number of first blocks that queries from `position` on do not attend in windowed layers.
  int64_t Unseen(int64_t position, int64_t block_positions) const {
    return windowed == 0 || position < window ? 0 : (position - window + 1) / block_positions;
  }
  // The most blocks of one windowed group that a sequence holds, if at most `chunk` of its
  // positions are computed at a time.
  int64_t MostWindowBlocks(int64_t chunk, int64_t block_positions) const;
  // The most blocks of all groups that a sequence of `positions` holds at a time.
  int64_t MostBlocks(int64_t positions, int64_t chunk, int64_t block_positions) const;
};

// Sizes of one model's cache. A block holds `block_positions` rows of every layer of one group. All
// groups have as many layers. A model without windows has one group.
struct CacheGeometry {
  int64_t block_positions = 0;
  std::vector<int64_t> row_bytes;      // [layers]; all equal if there are several groups
  int64_t mha_bytes_per_position = 0;  // for comparison: if every layer were MHA
  int64_t window = 0;                  // of windowed layers; 0: there are none
  std::vector<bool> windowed = {};     // [layers]; empty: no layer is

  LayerGroups Groups() const;
  // Layers of a group. A layer's rows are in part SlotOf of its group's blocks.
  int64_t slots() const { return std::ssize(row_bytes) / Groups().count(); }
  int64_t GroupOf(int64_t layer) const;
  int64_t SlotOf(int64_t layer) const { return Rank(layer) % slots(); }

  // Adds the layers of another model whose rows are in blocks of the same numbers. REQUIRES: as
  // many positions in a block, and windows in neither model.
  void Add(const CacheGeometry& other);

  int64_t BytesPerPosition() const;
  int64_t BlockBytes() const { return block_positions * BytesPerPosition() / Groups().count(); }
  // Usage of a sequence with `blocks` blocks, of which `shared` belong to other sequences too, and
  // at most `peak_blocks` blocks so far. The windowed groups have given back `dropped` blocks each.
  KvCacheUsage Usage(int64_t positions, int64_t dropped, int64_t blocks, int64_t shared,
                     int64_t peak_blocks) const;

 private:
  bool IsWindowed(int64_t layer) const { return !windowed.empty() && windowed[layer]; }
  // The number of earlier layers of the same kind.
  int64_t Rank(int64_t layer) const;
};

// The number of whole blocks in `cache_bytes`. Throws LoadError unless it is 1 to INT32_MAX.
int64_t BlocksIn(const CacheGeometry& geometry, int64_t cache_bytes);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_KV_CACHE_GEOMETRY_H_
