// What is asked of the engine, and what comes back. Torch-free.
#ifndef TRIPTYCH_ENGINE_SERVING_REQUEST_H_
#define TRIPTYCH_ENGINE_SERVING_REQUEST_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/kv_cache/geometry.h"
#include "engine/serving/sampler.h"

namespace triptych {

struct Request {
  std::string id;               // unique among live requests
  std::vector<int32_t> prompt;  // the begin token included; not empty
  // 0 only to score: the request ends once the prompt is computed.
  int64_t max_new_tokens = 0;
  SamplingParams sampling;
  uint64_t seed = 0;
  std::vector<std::string> stop;
  std::optional<int32_t> logprobs;  // report the chosen token's and this many of the top
  bool ignore_eos = false;
  bool score_prompt = false;  // report the log-probability of prompt[1:]
};

enum class SubmitStatus {
  kAccepted,
  kQueueFull,
  kPromptTooLong,  // no room in the context for the prompt and one new token (if any is asked for)
  kNeverFits,      // needs more blocks than the pool has
  kStopping,       // the engine is shutting down
};

enum class FinishReason {
  kStop,       // end token or stop string
  kLength,     // max_new_tokens, or the end of the context
  kCancelled,  // by the client
  kFailed,     // the step that computed it threw
};

struct RequestUsage {
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  std::chrono::nanoseconds queue_time{};    // arrival to first scheduled
  std::chrono::nanoseconds prefill_time{};  // first scheduled to first token (or end of scoring)
  std::chrono::nanoseconds decode_time{};   // first token to last
  int64_t preemptions = 0;
  KvCacheUsage kv_cache;
};

// A generated token, and the text that it decided: whole UTF-8 characters.
struct Delta {
  int32_t token = 0;
  std::optional<TokenLogprobs> logprobs;  // if asked for
  std::string text;
};

struct Completion {
  FinishReason reason = FinishReason::kStop;
  std::string error;                   // kFailed: what went wrong
  std::optional<std::string> stop;     // the stop string that matched
  std::vector<float> prompt_logprobs;  // score_prompt: of prompt[1:]
  RequestUsage usage;
};

// Receives a request's results on the engine's thread; calls must neither block nor call the
// engine. Exactly one of OnRejected and OnFinish is called, last.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  // Never with kAccepted.
  virtual void OnRejected(SubmitStatus status) = 0;
  virtual void OnDelta(Delta delta) = 0;
  virtual void OnFinish(Completion completion) = 0;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_SERVING_REQUEST_H_
