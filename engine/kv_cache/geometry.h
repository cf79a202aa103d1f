// Byte accounting of a paged cache: what positions and blocks cost. Torch-free.
#ifndef TRIPTYCH_ENGINE_KV_CACHE_GEOMETRY_H_
#define TRIPTYCH_ENGINE_KV_CACHE_GEOMETRY_H_

#include <cstdint>
#include <vector>

namespace triptych {

// What one sequence's cache costs. A position is a row written in every layer.
struct KvCacheUsage {
  int64_t positions = 0;
  int64_t bytes_per_position = 0;
  int64_t used_bytes = 0;            // positions * bytes_per_position
  int64_t allocated_bytes = 0;       // the unused tail of the last block included
  int64_t peak_allocated_bytes = 0;  // the most ever reserved; kept after release
  int64_t mha_used_bytes = 0;        // the same positions if every layer were MHA
  int64_t shared_bytes = 0;          // of allocated_bytes: blocks that other sequences hold too
  int64_t own_bytes = 0;             // the rest
};

// The bytes of one model's cache. A block holds `block_positions` rows of every layer.
struct CacheGeometry {
  int64_t block_positions = 0;
  std::vector<int64_t> row_bytes;      // of each layer
  int64_t mha_bytes_per_position = 0;  // for comparison: every layer MHA

  int64_t BytesPerPosition() const;
  int64_t BlockBytes() const { return block_positions * BytesPerPosition(); }
  // Of a sequence that holds `blocks`, of which others hold `shared` too, and held at most
  // `peak_blocks`.
  KvCacheUsage Usage(int64_t positions, int64_t blocks, int64_t shared, int64_t peak_blocks) const;
};

// The whole blocks that a cache of so many bytes holds. Throws LoadError if they are none, or more
// than an int32 counts.
int64_t BlocksIn(const CacheGeometry& geometry, int64_t cache_bytes);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_KV_CACHE_GEOMETRY_H_
