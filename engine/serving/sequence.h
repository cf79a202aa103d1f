// A live request: its tokens, its cache, and how far it has come. Torch-free.
#ifndef TRIPTYCH_ENGINE_SERVING_SEQUENCE_H_
#define TRIPTYCH_ENGINE_SERVING_SEQUENCE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/kv_cache/block_table.h"
#include "engine/serving/request.h"
#include "engine/serving/stats.h"
#include "engine/text/text_stream.h"

namespace triptych {

struct Sequence {
  Sequence(Request request_in, std::shared_ptr<RequestSink> sink_in, BlockPool& pool,
           int64_t block_positions)
      : request(std::move(request_in)),
        sink(std::move(sink_in)),
        tokens(request.prompt),
        blocks(pool, block_positions),
        sampler(request.sampling, request.seed, request.prompt),
        stops(request.stop) {}

  int64_t generated() const { return static_cast<int64_t>(tokens.size() - request.prompt.size()); }
  SequenceState state() const {
    if (!running) return SequenceState::kWaiting;
    return cached + 1 < static_cast<int64_t>(tokens.size()) || generated() == 0
               ? SequenceState::kPrefill
               : SequenceState::kDecode;
  }

  Request request;
  std::shared_ptr<RequestSink> sink;
  std::vector<int32_t> tokens;  // prompt, then generated
  BlockTable blocks;
  // Positions whose rows are written. The scheduler plans from here; the engine advances it.
  int64_t cached = 0;
  bool running = false;  // the scheduler's: planned into steps, not waiting
  int64_t preemptions = 0;

  Sampler sampler;
  Utf8Stream utf8;
  StopStrings stops;
  int64_t prompt_scored = 0;  // of prompt[1:], how many were reported

  EngineClock::time_point arrived;
  std::optional<EngineClock::time_point> first_scheduled;
  std::optional<EngineClock::time_point> first_token;
  EngineClock::time_point last_token;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_SERVING_SEQUENCE_H_
