#include "engine/kv_cache/geometry.h"

#include <numeric>

namespace triptych {

int64_t CacheGeometry::BytesPerPosition() const {
  return std::accumulate(row_bytes.begin(), row_bytes.end(), int64_t{0});
}

KvCacheUsage CacheGeometry::Usage(int64_t positions, int64_t blocks, int64_t peak_blocks) const {
  return {.positions = positions,
          .bytes_per_position = BytesPerPosition(),
          .used_bytes = positions * BytesPerPosition(),
          .reserved_bytes = blocks * BlockBytes(),
          .peak_reserved_bytes = peak_blocks * BlockBytes(),
          .mha_used_bytes = positions * mha_bytes_per_position};
}

}  // namespace triptych
