// Requests to an engine, and their results.
#ifndef TRIPTYCH_ENGINE_SERVING_REQUEST_H_
#define TRIPTYCH_ENGINE_SERVING_REQUEST_H_

#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/grammar/token_grammar.h"
#include "engine/kv_cache/geometry.h"
#include "engine/serving/sampler.h"
#include "engine/serving/speculation.h"

namespace triptych::serving {

using EngineClock = std::chrono::steady_clock;

enum class Priority { kHigh, kNormal, kLow };

struct Request {
  std::string id;  // unique among live requests
  // The first of `choices` consecutive numbers, in order of arrival. Sequences are listed by
  // number.
  uint64_t number = 0;
  std::string client;  // the queue is fair between clients
  Priority priority = Priority::kNormal;
  EngineClock::time_point arrived = EngineClock::now();

  std::vector<int32_t> prompt;  // not empty
  // 0: score only; the request ends once the prompt is computed.
  int64_t max_new_tokens = 0;
  // The end tokens and stop_tokens cannot be chosen before this many tokens, and stop strings that
  // are complete by then are text.
  int64_t min_new_tokens = 0;
  // Number of continuations. Each is a sequence; they share the blocks of the prompt.
  int32_t choices = 1;
  SamplingParams sampling;
  uint64_t seed = 0;  // of choice 0; ChoiceSeed derives the seeds of the others
  // Matched in the text that includes the special tokens' text, shown or not.
  std::vector<std::string> stop;
  bool include_stop = false;          // the matched stop string is part of the text
  std::vector<int32_t> stop_tokens;   // in addition to the end tokens
  bool show_special = false;          // special tokens that do not end the output have their text
  std::vector<int32_t> shown_tokens;  // special tokens that have their text in any case, likewise
  bool ignore_eos = false;
  // The output is a text of this grammar, of the model's tokens, unless it ends early; null: any
  // text. It ends where the grammar allows nothing else, also before min_new_tokens. The end tokens
  // and stop_tokens can only be chosen where the grammar may end. Stop strings end it anywhere.
  std::shared_ptr<const grammar::TokenGrammar> grammar;
  std::optional<int32_t> logprobs;  // report the chosen token's and those of this many top tokens
  // Report those of prompt[1:], each with this many top tokens. The whole prompt is then computed.
  std::optional<int32_t> prompt_logprobs;
  // Tokens that the output is expected to resemble: drafts, which change its speed only.
  std::vector<int32_t> prediction;
  int32_t most_drafted = kMostDrafted;  // tokens in a step; 0: no speculation
  // Use registered blocks of other requests, and register blocks for them. Does not change the
  // output.
  bool share_prefix = true;

  // Tokens that it holds while it waits.
  int64_t tokens() const { return std::ssize(prompt) + std::ssize(prediction); }
};

// A model's defaults for the fields that a request does not set.
struct RequestDefaults {
  SamplingParams sampling;
  std::optional<int64_t> max_new_tokens;  // absent: up to the end of the context
};

// The seed of a choice. A request with one choice and this seed has the same output.
uint64_t ChoiceSeed(uint64_t seed, int32_t choice);

enum class SubmitStatus {
  kAccepted,
  kQueueFull,      // too many waiting requests or tokens
  kQueueTimeout,   // waited too long to be scheduled
  kPromptTooLong,  // no room in the context for the prompt and one new token (if any is requested)
  kNeverFits,      // needs more blocks than the pool has
  kStopping,       // the engine is shutting down
};

enum class FinishReason {
  kStop,       // end token, stop token or stop string
  kLength,     // max_new_tokens, or the end of the context
  kCancelled,  // by the client
  kFailed,     // the step that computed it threw
};

// Usage of one choice.
struct RequestUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_prompt_tokens = 0;  // of these, prefix hits
  int64_t generated_tokens = 0;
  int64_t drafted_tokens = 0;               // verified by a step
  int64_t accepted_tokens = 0;              // of these, equal to the generated ones
  std::chrono::nanoseconds queue_time{};    // arrival to first scheduled
  std::chrono::nanoseconds prefill_time{};  // first scheduled to first token (or end of scoring)
  std::optional<std::chrono::nanoseconds> first_token_time;  // arrival to it, if there is one
  std::chrono::nanoseconds decode_time{};                    // first token to last
  std::chrono::nanoseconds mean_wait{};                      // between two tokens; 0 without
  std::chrono::nanoseconds longest_wait{};                   // between two tokens; 0 without
  std::chrono::nanoseconds total_time{};                     // arrival to the end
  int64_t preemptions = 0;
  KvCacheUsage kv_cache;
};

// A generated token, and the text that it completes: whole UTF-8 characters.
struct Delta {
  int32_t choice = 0;
  int32_t token = 0;
  std::optional<TokenLogprobs> logprobs;  // if requested
  std::string text;
};

// Load of an engine at one moment.
struct EngineLoad {
  int64_t running = 0;  // sequences
  int64_t waiting = 0;
  double kv_cache_utilization = 0;  // allocated share of the blocks, 0 to 1
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

// Receives a request's results on the engine's thread. Methods must neither block nor call the
// engine. A rejected request gets one OnRejected and nothing else. Any other gets OnScheduled, and
// OnFinish for each choice after that choice's last delta. A request that is cancelled or fails
// while it waits gets OnFinish without OnScheduled.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  // Never with kAccepted.
  virtual void OnRejected(SubmitStatus status) = 0;
  // The first step that computes the request is planned; it can no longer be rejected.
  virtual void OnScheduled() {}
  // Log-probabilities of the prompt's next tokens, before the first delta, once for all choices.
  virtual void OnPromptLogprobs(std::vector<TokenLogprobs> /*logprobs*/) {}
  virtual void OnDelta(Delta delta) = 0;
  virtual void OnFinish(Completion completion) = 0;
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_REQUEST_H_
