// What an engine holds at one moment. Torch-free.
#ifndef TRIPTYCH_ENGINE_SERVING_STATS_H_
#define TRIPTYCH_ENGINE_SERVING_STATS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "engine/kv_cache/geometry.h"

namespace triptych::serving {

enum class SequenceState { kWaiting, kPrefill, kDecode };

// Since the engine was made. A request's end is its last choice's; tokens are sums over choices.
struct RequestCounts {
  int64_t accepted = 0;  // into the queue
  int64_t refused = 0;   // by the queue, or after too long in it
  int64_t finished = 0;
  int64_t cancelled = 0;
  int64_t failed = 0;
  int64_t prompt_tokens = 0;         // of choices that have ended
  int64_t cached_prompt_tokens = 0;  // of these, found in the cache
  int64_t generated_tokens = 0;
  int64_t sampled_tokens = 0;  // those of live choices too
  // Of choices that have a token, live ones too: how many, and from arrival to it, added up.
  int64_t first_tokens = 0;
  std::chrono::nanoseconds first_token_time{0};
};

// A model's pool, at one moment: pool_bytes = reserved + cached + free.
struct KvCacheStats {
  std::chrono::nanoseconds uptime{0};  // since the engine was made
  int64_t pool_bytes = 0;              // really allocated
  int64_t used_bytes = 0;
  int64_t allocated_bytes = 0;
  int64_t free_bytes = 0;
  int64_t peak_allocated_bytes = 0;
  int64_t bytes_per_position = 0;
  int64_t block_positions = 0;
  int64_t block_bytes = 0;
  int64_t total_blocks = 0;
  int64_t free_blocks = 0;
  int64_t positions = 0;  // shared ones once
  int64_t mha_used_bytes = 0;
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t preemptions = 0;   // since the engine was made
  int64_t shared_bytes = 0;  // of allocated_bytes: blocks that several sequences hold
  int64_t evictable_blocks = 0;
  int64_t evictable_bytes = 0;  // held by no sequence, given up when room is needed
  int64_t evicted_blocks = 0;   // cached ones given up, since the engine was made
  RequestCounts requests;
};

// A live sequence, at one moment.
struct SequenceStats {
  std::string id;       // the request's
  uint64_t number = 0;  // in the order of arrival
  uint64_t order = 0;   // of submission to its engine, from 1
  int32_t choice = 0;
  std::string client;
  SequenceState state = SequenceState::kWaiting;
  int64_t prompt_tokens = 0;
  int64_t cached_prompt_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t preemptions = 0;
  KvCacheUsage kv_cache;
};

// Which live sequences are listed, in the order of their numbers.
struct SequenceQuery {
  uint64_t after = 0;  // only higher numbers
  size_t limit = std::numeric_limits<size_t>::max();
  std::optional<std::string> client = {};  // only this one's
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_STATS_H_
