#include "engine/kv_cache/geometry.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <string>

#include "engine/base/ceil_div.h"
#include "engine/base/error.h"

namespace triptych {

int64_t LayerGroups::MostWindowBlocks(int64_t chunk, int64_t block_positions) const {
  return CeilDiv(window - 1 + chunk, block_positions) + 1;
}

int64_t LayerGroups::MostBlocks(int64_t positions, int64_t chunk, int64_t block_positions) const {
  const int64_t blocks = CeilDiv(positions, block_positions);
  return full * blocks + windowed * std::min(blocks, MostWindowBlocks(chunk, block_positions));
}

// The groups are as large as the numbers of full and of windowed layers allow.
LayerGroups CacheGeometry::Groups() const {
  const auto of_window = static_cast<int64_t>(std::count(windowed.begin(), windowed.end(), true));
  if (of_window == 0) return {};
  const int64_t of_full = std::ssize(row_bytes) - of_window;
  const int64_t layers = std::gcd(of_full, of_window);
  return {.full = of_full / layers, .windowed = of_window / layers, .window = window};
}

int64_t CacheGeometry::GroupOf(int64_t layer) const {
  const int64_t before = IsWindowed(layer) ? Groups().full : 0;
  return before + Rank(layer) / slots();
}

int64_t CacheGeometry::Rank(int64_t layer) const {
  if (windowed.empty()) return layer;
  return std::count(windowed.begin(), windowed.begin() + layer, windowed[layer]);
}

void CacheGeometry::Add(const CacheGeometry& other) {
  assert(block_positions == other.block_positions);
  assert(Groups().count() == 1 && other.Groups().count() == 1);
  row_bytes.insert(row_bytes.end(), other.row_bytes.begin(), other.row_bytes.end());
  mha_bytes_per_position += other.mha_bytes_per_position;
}

int64_t CacheGeometry::BytesPerPosition() const {
  return std::accumulate(row_bytes.begin(), row_bytes.end(), int64_t{0});
}

KvCacheUsage CacheGeometry::Usage(int64_t positions, int64_t dropped, int64_t blocks,
                                  int64_t shared, int64_t peak_blocks) const {
  return {.positions = positions,
          .bytes_per_position = BytesPerPosition(),
          .used_bytes = positions * BytesPerPosition() - Groups().windowed * dropped * BlockBytes(),
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
