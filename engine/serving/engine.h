// Serves one model: requests in, tokens out, one step at a time. Torch-free.
#ifndef TRIPTYCH_ENGINE_SERVING_ENGINE_H_
#define TRIPTYCH_ENGINE_SERVING_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/backend/model_backend.h"
#include "engine/base/mutex.h"
#include "engine/kernels/context.h"
#include "engine/kv_cache/block_pool.h"
#include "engine/kv_cache/geometry.h"
#include "engine/serving/block_map.h"
#include "engine/serving/engine_metrics.h"
#include "engine/serving/prefill_throttle.h"
#include "engine/serving/request.h"
#include "engine/serving/scheduler.h"
#include "engine/serving/stats.h"
#include "engine/text/tokenizer.h"

namespace triptych::serving {

struct EngineOptions {
  int64_t max_batch_tokens = 512;
  int64_t max_running = 64;
  int64_t max_waiting = 1024;                  // requests
  int64_t max_waiting_tokens = 1 << 20;        // of their prompts
  std::chrono::milliseconds queue_timeout{0};  // waiting longer than that is refused; 0: never
  bool prefix_cache = true;
  double max_slowdown =
      PrefillThrottle::kDefaultMaxSlowdown;  // by prompts, of those who generate: PrefillThrottle
};

// Not thread-safe: one thread calls everything (EngineLoop's, in a server) but what says otherwise.
// Sinks are called from within Submit, Cancel and Step.
class Engine {
 public:
  using Clock = std::function<EngineClock::time_point()>;

  // Tokens are chosen on the threads of `context`, which may be the model's.
  Engine(std::unique_ptr<ModelBackend> model, std::shared_ptr<const Tokenizer> tokenizer,
         const EngineOptions& options, Clock clock = EngineClock::now,
         std::shared_ptr<kernels::KernelContext> context =
             std::make_shared<kernels::KernelContext>(1));

  // Takes a request in, or calls OnRejected.
  void Submit(Request request, const std::shared_ptr<RequestSink>& sink);
  // Ends what is left of a request with kCancelled; its blocks are free on return. Unknown ids are
  // ignored.
  void Cancel(const std::string& id);
  // Cancels every live request.
  void CancelAll();
  // Ends every live request with kFailed, and refuses new ones with kStopping.
  void FailAll(const std::string& error);
  // Computes one batch; false if there was nothing to do. A batch that cannot be computed fails
  // its own requests and no others, except that DeviceLost is thrown on. `others`: how long others
  // that wait for this step can be kept waiting by the prompts in it; zero if nobody does.
  bool Step(PrefillThrottle::Duration others = {});
  // From now on Submit rejects with kStopping; live requests go on.
  void StopAccepting() { accepting_ = false; }

  bool idle() const { return scheduler_.empty(); }
  // How long a step takes that generates for those who now do; zero if nobody does.
  PrefillThrottle::Duration decode_step() const;
  KvCacheStats Stats() const;
  // Shows other threads the statistics of now, if anything has changed since the last time.
  void Publish() TRIPTYCH_EXCLUDES(published_mutex_);
  // On any thread: the statistics that were published last, however long a step takes.
  KvCacheStats Published() const TRIPTYCH_EXCLUDES(published_mutex_);
  // To be read on any thread.
  const EngineMetrics& metrics() const { return metrics_; }
  std::vector<SequenceStats> Sequences(const SequenceQuery& query = {}) const;
  // Looks at every block.
  BlockMap MapBlocks() const;
  const BackendInfo& info() const { return model_->info(); }
  // For checks of what the statistics are made of.
  const BlockPool& pool() const { return pool_; }
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  // A row of logits that a step computes, and what is told of it.
  struct LogitRow {
    Sequence* sequence;
    int64_t position;                       // of the token that the row is of
    bool likely = false;                    // its likely tokens are computed, not its logits
    bool needs_rest = false;                // and do not suffice
    int64_t index = 0;                      // among the step's likely_rows or logit_rows
    int32_t token = -1;                     // that is chosen to follow it, if one can be
    std::optional<TokenLogprobs> logprobs;  // of that, or of the prompt's next, if asked for
  };

  // Refuses what has waited longer than the queue timeout.
  void RefuseLate();
  // A step that computes the sequence has been planned for the first time.
  void Begin(Sequence& sequence, EngineClock::time_point now);
  // The logits that the chunks want [rows, vocab], the model's.
  std::span<const float> Compute(const std::vector<Chunk>& chunks);
  // Whether the sequence's next token is chosen from the model's likely tokens.
  bool UsesLikely(const Sequence& sequence) const;
  // The tokens that may not be chosen next.
  static std::span<const int32_t> Forbidden(const Sequence& sequence);
  // Fills in the row. `logits`: of the step. Threads share rows: of the sequence, it changes only
  // the sampler.
  void Choose(std::span<const float> logits, LogitRow& row) const;
  // Fills in the rows whose choice depends on more than their likely tokens.
  void ChooseRest();
  // `rows`: those of the chunk.
  void Commit(const Chunk& chunk, std::span<LogitRow> rows);
  // False if one is not finite.
  bool ReportPromptLogprobs(Sequence& sequence, std::span<LogitRow> rows);
  // Delivers the token that was chosen; ends the sequence where it should.
  void Generate(Sequence& sequence, LogitRow& row);
  // Ends the sequence with kFailed, and the choices that wait for its prompt.
  void Fail(Sequence& sequence, const std::string& error);
  void Finish(Sequence& sequence, FinishReason reason, const std::string& error = "");
  void Count(const Completion& completion, bool last_choice);
  KvCacheUsage Usage(const Sequence& sequence) const;
  SequenceStats StatsOf(const Sequence& sequence) const;

  std::unique_ptr<ModelBackend> model_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  BlockPool pool_;
  Scheduler scheduler_;  // dies before the pool that its sequences give their blocks back to
  const std::chrono::milliseconds queue_timeout_;
  const Clock clock_;
  const std::shared_ptr<kernels::KernelContext> context_;
  const EngineClock::time_point made_;
  PrefillThrottle throttle_;
  RequestCounts counts_;  // but for what Stats takes from the metrics
  EngineMetrics metrics_;
  bool accepting_ = true;
  bool changed_ = true;  // since the statistics were published
  mutable Mutex published_mutex_;
  KvCacheStats published_ TRIPTYCH_GUARDED_BY(published_mutex_);
  // What one step computes; kept, so that computing steps of a size allocates nothing.
  StepInput step_;
  std::vector<LogitRow> rows_;       // of the step's logit_rows
  std::vector<int64_t> chunk_rows_;  // of each chunk, how many of these are its own
  std::vector<LogitRow*> rest_;      // the rows of ChooseRest
  std::vector<int64_t> rest_rows_;   // and their indices
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_ENGINE_H_
