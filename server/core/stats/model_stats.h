// Statistics and live sequences of the hosted models at one moment, between two steps.
#ifndef TRIPTYCH_SERVER_CORE_STATS_MODEL_STATS_H_
#define TRIPTYCH_SERVER_CORE_STATS_MODEL_STATS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/serving/block_map.h"
#include "engine/serving/stats.h"

namespace triptych::server {

struct ModelStats {
  std::string model;
  serving::KvCacheStats kv_cache;
  // Taken at the same moment; null unless requested.
  std::shared_ptr<const serving::BlockMap> block_map;
  // The block map's sequences as the caller may see them. The map's own are not for clients.
  std::shared_ptr<const std::vector<serving::SequenceStats>> holders = {};
};

struct RegistryStats {
  std::vector<ModelStats> models;
  // The sums over `models`.
  int64_t pool_bytes = 0;
  int64_t used_bytes = 0;
  int64_t allocated_bytes = 0;
  int64_t evictable_bytes = 0;
  int64_t free_bytes = 0;

  void Add(ModelStats stats) {
    pool_bytes += stats.kv_cache.pool_bytes;
    used_bytes += stats.kv_cache.used_bytes;
    allocated_bytes += stats.kv_cache.allocated_bytes;
    evictable_bytes += stats.kv_cache.evictable_bytes;
    free_bytes += stats.kv_cache.free_bytes;
    models.push_back(std::move(stats));
  }
};

struct LiveSequence {
  std::string model;
  serving::SequenceStats stats;
};

// Selects the sequences of some models that a page is made of.
struct SequenceListing {
  std::vector<size_t> models;  // indices into ModelRegistry::models()
  uint64_t after = 0;          // only higher numbers
  size_t limit = 0;
  std::optional<std::string> client;  // only this client's; every client's if absent

  bool operator==(const SequenceListing&) const = default;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_STATS_MODEL_STATS_H_
