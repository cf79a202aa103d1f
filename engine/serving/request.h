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

namespace triptych::serving {

using EngineClock = std::chrono::steady_clock;

enum class Priority { kHigh, kNormal, kLow };

struct Request {
  std::string id;  // unique among live requests
  // The first of `choices` numbers in the order of arrival, by which sequences are listed.
  uint64_t number = 0;
  std::string client;  // who asks; clients take turns
  Priority priority = Priority::kNormal;
  EngineClock::time_point arrived = EngineClock::now();

  std::vector<int32_t> prompt;  // not empty
  // 0 only to score: the request ends once the prompt is computed.
  int64_t max_new_tokens = 0;
  // The end token and stop_tokens cannot be chosen before so many.
  int64_t min_new_tokens = 0;
  // Continuations, each a sequence of its own; they share the blocks of the prompt.
  int32_t choices = 1;
  SamplingParams sampling;
  uint64_t seed = 0;  // of choice 0; ChoiceSeed derives the others'
  std::vector<std::string> stop;
  bool include_stop = false;         // the stop string that matched is part of the text
  std::vector<int32_t> stop_tokens;  // beside the end token
  bool ignore_eos = false;
  std::optional<int32_t> logprobs;  // report the chosen token's and this many of the top
  // Report those of prompt[1:], with this many of the top. The whole prompt is computed then.
  std::optional<int32_t> prompt_logprobs;
  // Take what is cached of the prompt from others and leave it to others. The output is the same
  // either way.
  bool share_prefix = true;
};

// What a model's requests have where who asks says nothing.
struct RequestDefaults {
  SamplingParams sampling;
  std::optional<int64_t> max_new_tokens;  // as many as fit if absent
};

// The seed of a choice: that of a request with one choice and the same output.
uint64_t ChoiceSeed(uint64_t seed, int32_t choice);

enum class SubmitStatus {
  kAccepted,
  kQueueFull,      // too many requests or prompt tokens wait
  kQueueTimeout,   // it waited too long to be scheduled
  kPromptTooLong,  // no room in the context for the prompt and one new token (if any is asked for)
  kNeverFits,      // needs more blocks than the pool has
  kStopping,       // the engine is shutting down
};

enum class FinishReason {
  kStop,       // end token, stop token or stop string
  kLength,     // max_new_tokens, or the end of the context
  kCancelled,  // by the client
  kFailed,     // the step that computed it threw
};

// Of one choice.
struct RequestUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_prompt_tokens = 0;  // of these, found in the cache when first scheduled
  int64_t generated_tokens = 0;
  std::chrono::nanoseconds queue_time{};    // arrival to first scheduled
  std::chrono::nanoseconds prefill_time{};  // first scheduled to first token (or end of scoring)
  std::optional<std::chrono::nanoseconds> first_token_time;  // arrival to it, if there is one
  std::chrono::nanoseconds decode_time{};                    // first token to last
  std::chrono::nanoseconds mean_wait{};                      // between two tokens, if there are
  std::chrono::nanoseconds longest_wait{};                   // as well
  std::chrono::nanoseconds total_time{};                     // arrival to the end
  int64_t preemptions = 0;
  KvCacheUsage kv_cache;
};

// A generated token, and the text that it decided: whole UTF-8 characters.
struct Delta {
  int32_t choice = 0;
  int32_t token = 0;
  std::optional<TokenLogprobs> logprobs;  // if asked for
  std::string text;
};

// What an engine has to do at one moment.
struct EngineLoad {
  int64_t running = 0;  // sequences
  int64_t waiting = 0;
  double kv_cache_utilization = 0;  // the share of the blocks that sequences hold
};

// The end of one choice.
struct Completion {
  int32_t choice = 0;
  FinishReason reason = FinishReason::kStop;
  std::string error;                // kFailed: what went wrong
  std::optional<std::string> stop;  // the stop string that matched
  uint64_t seed = 0;                // the choice's
  RequestUsage usage;
  EngineLoad load;  // without the choice
};

// Receives a request's results on the engine's thread; calls must neither block nor call the
// engine. Either OnRejected is called, once and alone, or OnScheduled, and then OnFinish for each
// choice, each after that choice's last delta; a request that is cancelled or fails while it waits
// gets OnFinish without OnScheduled.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  // Never with kAccepted.
  virtual void OnRejected(SubmitStatus status) = 0;
  // The first step that computes the request has been planned: it is not rejected any more.
  virtual void OnScheduled() {}
  // Of the prompt's next tokens, before the first delta; choices share one prompt.
  virtual void OnPromptLogprobs(std::vector<TokenLogprobs> /*logprobs*/) {}
  virtual void OnDelta(Delta delta) = 0;
  virtual void OnFinish(Completion completion) = 0;
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_REQUEST_H_
