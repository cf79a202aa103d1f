// Byte accounting of a paged KV cache.
#ifndef TRIPTYCH_ENGINE_KV_CACHE_GEOMETRY_H_
#define TRIPTYCH_ENGINE_KV_CACHE_GEOMETRY_H_

#include <cstdint>
#include <vector>

namespace triptych {

// Cache bytes of one sequence. A position has a row in every layer.
struct KvCacheUsage {
  int64_t positions = 0;
  int64_t bytes_per_position = 0;
  int64_t used_bytes = 0;            // positions * bytes_per_position
  int64_t allocated_bytes = 0;       // including the unused tail of the last block
  int64_t peak_allocated_bytes = 0;  // maximum so far; kept after release
  int64_t mha_used_bytes = 0;        // the same positions if every layer were MHA
  int64_t shared_bytes = 0;          // part of allocated_bytes: blocks of other sequences too
  int64_t own_bytes = 0;             // the rest of allocated_bytes
};

// Sizes of one model's cache. A block holds `block_positions` rows of every layer.
struct CacheGeometry {
  int64_t block_positions = 0;
  std::vector<int64_t> row_bytes;      // [layers]
  int64_t mha_bytes_per_position = 0;  // for comparison: if every layer were MHA

  int64_t BytesPerPosition() const;
  int64_t BlockBytes() const { return block_positions * BytesPerPosition(); }
  // Usage of a sequence with `blocks` blocks, of which `shared` belong to other sequences too, and
  // at most `peak_blocks` blocks so far.
  KvCacheUsage Usage(int64_t positions, int64_t blocks, int64_t shared, int64_t peak_blocks) const;
};

// The number of whole blocks in `cache_bytes`. Throws LoadError unless it is 1 to INT32_MAX.
int64_t BlocksIn(const CacheGeometry& geometry, int64_t cache_bytes);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_KV_CACHE_GEOMETRY_H_
