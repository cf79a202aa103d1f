// Results of a score, gathered from its call's chunks.
#ifndef TRIPTYCH_SERVER_CORE_REQUESTS_SCORES_H_
#define TRIPTYCH_SERVER_CORE_REQUESTS_SCORES_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "engine/serving/request.h"
#include "server/core/requests/stream_buffer.h"

namespace triptych::server {

struct InputScore {
  std::vector<float> logprobs;  // of every token except the first
  serving::RequestUsage usage;
};

// In the inputs' order.
using Scores = std::vector<InputScore>;

inline void AddChunk(const StreamChunk& chunk, Scores& scores) {
  const auto input = static_cast<size_t>(chunk.choice);
  scores.resize(std::max(scores.size(), input + 1));
  for (const serving::TokenLogprobs& token : chunk.prompt_logprobs) {
    scores[input].logprobs.push_back(token.chosen.logprob);
  }
  if (chunk.completion) scores[input].usage = chunk.completion->usage;
}

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_REQUESTS_SCORES_H_
