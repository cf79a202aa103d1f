// What an engine holds at one moment. Torch-free.
#ifndef TRIPTYCH_ENGINE_SERVING_STATS_H_
#define TRIPTYCH_ENGINE_SERVING_STATS_H_

#include <cstdint>
#include <string>

#include "engine/kv_cache/geometry.h"

namespace triptych {

enum class SequenceState { kWaiting, kPrefill, kDecode };

// A model's pool, at one moment.
struct KvCacheStats {
  int64_t pool_bytes = 0;  // really allocated
  int64_t used_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t free_bytes = 0;
  int64_t peak_reserved_bytes = 0;
  int64_t bytes_per_position = 0;
  int64_t block_positions = 0;
  int64_t block_bytes = 0;
  int64_t total_blocks = 0;
  int64_t free_blocks = 0;
  int64_t positions = 0;
  int64_t mha_used_bytes = 0;
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t preemptions = 0;  // since the engine was made
};

// A live sequence, at one moment.
struct SequenceStats {
  std::string id;
  SequenceState state = SequenceState::kWaiting;
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t preemptions = 0;
  KvCacheUsage kv_cache;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_SERVING_STATS_H_
