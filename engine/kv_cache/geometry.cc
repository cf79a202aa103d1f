#include "engine/kv_cache/geometry.h"

#include <numeric>
#include <string>

#include "engine/base/error.h"

namespace triptych {

int64_t CacheGeometry::BytesPerPosition() const {
  return std::accumulate(row_bytes.begin(), row_bytes.end(), int64_t{0});
}

KvCacheUsage CacheGeometry::Usage(int64_t positions, int64_t blocks, int64_t shared,
                                  int64_t peak_blocks) const {
  return {.positions = positions,
          .bytes_per_position = BytesPerPosition(),
          .used_bytes = positions * BytesPerPosition(),
          .allocated_bytes = blocks * BlockBytes(),
          .peak_allocated_bytes = peak_blocks * BlockBytes(),
          .mha_used_bytes = positions * mha_bytes_per_position,
          .shared_bytes = shared * BlockBytes(),
          .own_bytes = (blocks - shared) * BlockBytes()};
}

int64_t BlocksIn(const CacheGeometry& geometry, int64_t cache_bytes) {
  const int64_t blocks = cache_bytes / geometry.BlockBytes();
  if (blocks < 1 || blocks > INT32_MAX) {
    throw LoadError("a KV cache of " + std::to_string(cache_bytes) + " bytes holds " +
                    std::to_string(blocks) + " blocks of " + std::to_string(geometry.BlockBytes()) +
                    " bytes; allowed: 1 to " + std::to_string(INT32_MAX));
  }
  return blocks;
}

}  // namespace triptych
