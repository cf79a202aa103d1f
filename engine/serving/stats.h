// Statistics of an engine at one moment.
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

// Counts since the engine was created. A request ends with its last choice; tokens are sums over
// choices.
struct RequestCounts {
  int64_t accepted = 0;  // by the queue
  int64_t refused = 0;   // on arrival, or after too long in the queue
  int64_t finished = 0;
  int64_t cancelled = 0;
  int64_t failed = 0;
  int64_t prompt_tokens = 0;         // of choices that have ended
  int64_t cached_prompt_tokens = 0;  // of these, prefix hits
  int64_t generated_tokens = 0;
  int64_t sampled_tokens = 0;  // including those of live choices
  // Choices that have a token, including live ones, and the sum of their times from arrival to it.
  int64_t first_tokens = 0;
  std::chrono::nanoseconds first_token_time{0};
};

// A model's pool at one moment. pool_bytes = allocated_bytes + evictable_bytes + free_bytes.
struct KvCacheStats {
  std::chrono::nanoseconds uptime{0};  // since the engine was created
  int64_t pool_bytes = 0;              // memory of the pool
  int64_t used_bytes = 0;
  int64_t allocated_bytes = 0;
  int64_t free_bytes = 0;
  int64_t peak_allocated_bytes = 0;
  int64_t bytes_per_position = 0;
  int64_t block_positions = 0;
  int64_t block_bytes = 0;
  int64_t total_blocks = 0;
  int64_t free_blocks = 0;
  // Computed; shared ones count once. If all layers have windows: those whose rows are held.
  int64_t positions = 0;
  int64_t mha_used_bytes = 0;
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t preemptions = 0;   // since the engine was created
  int64_t shared_bytes = 0;  // part of allocated_bytes: blocks with several references
  int64_t evictable_blocks = 0;
  int64_t evictable_bytes = 0;  // without references; evicted when room is needed
  int64_t evicted_blocks = 0;   // since the engine was created
  RequestCounts requests;
};

// A live sequence at one moment.
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

// Selection of live sequences, listed in order of their numbers.
struct SequenceQuery {
  uint64_t after = 0;  // only higher numbers
  size_t limit = std::numeric_limits<size_t>::max();
  std::optional<std::string> client = {};  // only this client's
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_STATS_H_
