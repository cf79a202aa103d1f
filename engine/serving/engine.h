// Engine that serves one model: requests in, tokens out, one step at a time.
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
#include "engine/kv_cache/kv_event_log.h"
#include "engine/serving/block_map.h"
#include "engine/serving/draft_model.h"
#include "engine/serving/drafter.h"
#include "engine/serving/engine_metrics.h"
#include "engine/serving/prefill_throttle.h"
#include "engine/serving/request.h"
#include "engine/serving/scheduler.h"
#include "engine/serving/speculation.h"
#include "engine/serving/stats.h"
#include "engine/text/tokenizer.h"

namespace triptych::serving {

struct EngineOptions {
  int64_t max_batch_tokens = 512;
  int64_t max_running = 64;
  int64_t max_waiting = 1024;                  // requests in the queue
  int64_t max_waiting_tokens = 1 << 20;        // of their prompts and predictions
  std::chrono::milliseconds queue_timeout{0};  // a longer wait is refused; 0: never
  bool prefix_cache = true;
  // Number of the first batch of events of the prefix cache, at least 1; 0: no events.
  uint64_t kv_events = 0;
  double max_slowdown =
      PrefillThrottle::kDefaultMaxSlowdown;  // of decoding by prefill; see PrefillThrottle
  // Only on a model that verifies drafts (BackendInfo).
  Speculation speculation = Speculation::kOff;
  // Makes the drafter of a sequence; null: an NgramDrafter.
  std::function<std::unique_ptr<Drafter>(const Sequence&)> make_drafter = nullptr;
};

// Not thread-safe: one thread (EngineLoop's, in a server) calls every method, except those that
// allow any thread. Calls sinks only from within Submit, Cancel, CancelAll, FailAll and Step.
class Engine {
 public:
  using Clock = std::function<EngineClock::time_point()>;

  // Samples tokens on the threads of `context`, which the model may share. `draft_model`: drafts
  // tokens in addition to the drafters; may be null. Its rows count as parts of the model's rows in
  // info() and in all statistics. REQUIRES: it has as many blocks, of as many positions, and
  // neither model has windows.
  Engine(
      std::unique_ptr<ModelBackend> model, std::shared_ptr<const Tokenizer> tokenizer,
      const EngineOptions& options, Clock clock = EngineClock::now,
      std::shared_ptr<kernels::KernelContext> context = std::make_shared<kernels::KernelContext>(1),
      std::unique_ptr<ModelBackend> draft_model = nullptr);

  // Queues a request, or calls OnRejected.
  void Submit(Request request, const std::shared_ptr<RequestSink>& sink);
  // Ends the live choices of a request with kCancelled; their blocks are released on return.
  // Ignores unknown ids.
  void Cancel(const std::string& id);
  // Cancels every live request.
  void CancelAll();
  // Ends every live request with kFailed, and rejects new ones with kStopping.
  void FailAll(const std::string& error);
  // Computes one step; false if there was nothing to compute. A step that cannot be computed fails
  // its own requests and no others; DeviceLost is rethrown. `others`: decode latency budget of
  // other models that share the thread; zero if none is waiting.
  bool Step(PrefillThrottle::Duration others = {});
  // Makes Submit reject requests with kStopping; live requests continue.
  void StopAccepting() { accepting_ = false; }

  bool idle() const { return scheduler_.empty(); }
  // Median time of a decode-only step; zero if no sequence is decoding.
  PrefillThrottle::Duration decode_step() const;
  KvCacheStats Stats() const;
  // Publishes the current statistics, and the events of the prefix cache since the last call, to
  // other threads, if anything changed since then.
  void Publish() TRIPTYCH_EXCLUDES(published_mutex_);
  // The statistics published last. Callable from any thread; does not wait for a step.
  KvCacheStats Published() const TRIPTYCH_EXCLUDES(published_mutex_);
  // Both are readable from any thread.
  const EngineMetrics& metrics() const { return metrics_; }
  std::optional<ExpertLoad> expert_load() const { return model_->expert_load(); }
  std::vector<SequenceStats> Sequences(const SequenceQuery& query = {}) const;
  // Scans every block.
  BlockMap MapBlocks() const;
  // The events of the prefix cache; null if there are none. Readable from any thread.
  const KvEventLog* kv_events() const { return kv_events_.get(); }
  // As KvEventLog::OnBatch. REQUIRES: there are events.
  void OnKvEvents(std::function<void()> on_batch) { kv_events_->OnBatch(std::move(on_batch)); }
  // Publishes kCleared and the blocks that can be found, so that a reader can start here. Scans
  // every block. REQUIRES: there are events.
  void RestartKvEvents();
  const BackendInfo& info() const { return info_; }
  const ModelBackend& model() const { return *model_; }
  // For tests that check the statistics.
  const BlockPool& pool() const { return pool_; }
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  // A row of logits that a step computes, and the token chosen from it.
  struct LogitRow {
    Sequence* sequence;
    int64_t position;                       // of the row's token
    bool likely = false;                    // the model computes its likely tokens, not its logits
    bool needs_rest = false;                // the likely tokens do not suffice
    int64_t index = 0;                      // into the step's likely_rows or logit_rows
    int32_t token = -1;                     // the next token; -1 if none can be chosen
    std::optional<TokenLogprobs> logprobs;  // of the next token, if requested
    int32_t draft = -1;                     // the row's token, if it is a drafted one
    bool complete = false;                  // the next token ends the text of the grammar
  };

  // Rejects requests that have waited longer than the queue timeout.
  void RefuseLate();
  // Called when the first step that computes the sequence is planned.
  void Begin(Sequence& sequence, EngineClock::time_point now);
  // Adds rows of drafts to the planned step, if it only decodes. Returns their number. `others`: as
  // of Step.
  int64_t PlanDrafts(const std::vector<Chunk>& chunks, PrefillThrottle::Duration others);
  // Drafts tokens that may follow the sequence.
  void Propose(Sequence& sequence) const;
  // The most tokens, up to `most`, that the draft model may draft; 0 if catching up is not worth
  // it. Finds out which rows of the draft model the sequence has.
  int64_t MostByDraftModel(Sequence& sequence, int64_t most) const;
  // Plans the earlier tokens that the draft model has yet to compute. The sequences that it cannot
  // draft for in this step get no drafted rows.
  void CatchUp(const std::vector<Chunk>& chunks, std::span<int64_t> counts,
               PrefillThrottle::Duration others);
  // Drafts the tokens of the planned rows by steps of the draft model.
  void DraftByModel(const std::vector<Chunk>& chunks);
  // Computes the added rows of the draft model.
  std::span<const int32_t> StepDraftModel();
  // Records the blocks of the sequence's tokens from `from` on in which the draft model has
  // written.
  void MarkDrafted(Sequence& sequence, int64_t from);
  // True if the text ends with this token.
  bool EndsText(const Sequence& sequence, int32_t token) const;
  // The sequence's drafter. The choices of a request share the indices of its prediction.
  std::unique_ptr<Drafter> MakeDrafter(Sequence& sequence) const;
  // Computes the chunks. Returns their logits [rows, vocab], valid until the model's next step.
  std::span<const float> Compute(const std::vector<Chunk>& chunks);
  // True if the sequence's next token is chosen from the model's likely tokens.
  bool UsesLikely(const Sequence& sequence) const;
  // The tokens that may not be chosen after the row.
  static std::span<const int32_t> Forbidden(const LogitRow& row);
  // Fills in rows_[first], and the rows of drafted tokens after it while these are accepted.
  void ChooseFrom(std::span<const float> logits, int64_t first);
  // Fills in the row. `logits`: the step's. Several threads work on rows concurrently: of the
  // sequence, it changes only the sampler and the matcher.
  void Choose(std::span<const float> logits, LogitRow& row) const;
  // The next token of a sequence with a grammar; -1 if none can be chosen.
  int32_t ChooseByGrammar(std::span<const float> logits, const LogitRow& row) const;
  // Fills in the rows for which the likely tokens do not suffice.
  void ChooseRest();
  // Delivers the results of a computed chunk. `rows`: the chunk's.
  void Commit(const Chunk& chunk, std::span<LogitRow> rows);
  // False if a log-probability is not finite.
  bool ReportPromptLogprobs(Sequence& sequence, std::span<LogitRow> rows);
  // The text that a generated token releases. `show_special`: a special token has its text.
  std::string TextOf(Sequence& sequence, int32_t token, bool show_special) const;
  // Delivers the token chosen after the sequence's last one, then those chosen after its accepted
  // drafted tokens.
  void Deliver(Sequence& sequence, std::span<LogitRow> rows);
  // Delivers the chosen token. False if the sequence ends there, and is gone.
  bool Generate(Sequence& sequence, LogitRow& row);
  // Ends the sequence with kFailed, and the choices held back for its prompt.
  void Fail(Sequence& sequence, const std::string& error);
  void Finish(Sequence& sequence, FinishReason reason, const std::string& error = "");
  void Count(const Completion& completion, bool last_choice);
  KvCacheUsage Usage(const Sequence& sequence) const;
  SequenceStats StatsOf(const Sequence& sequence) const;

  const std::unique_ptr<ModelBackend> model_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::unique_ptr<DraftModel> draft_model_;  // null: there is none
  const BackendInfo info_;
  BlockPool pool_;
  const std::unique_ptr<KvEventLog> kv_events_;  // may be null; outlives scheduler_
  Scheduler scheduler_;  // destroyed before pool_, to which its sequences release blocks
  const std::chrono::milliseconds queue_timeout_;
  const Clock clock_;
  const std::shared_ptr<kernels::KernelContext> context_;
  const EngineClock::time_point made_;
  PrefillThrottle throttle_;
  SpeculationPolicy speculation_;
  const std::function<std::unique_ptr<Drafter>(const Sequence&)> make_drafter_;
  RequestCounts counts_;  // except those that Stats takes from the metrics
  EngineMetrics metrics_;
  bool accepting_ = true;
  bool changed_ = true;  // since the last Publish
  mutable Mutex published_mutex_;
  KvCacheStats published_ TRIPTYCH_GUARDED_BY(published_mutex_);
  // Buffers of one step, kept so that further steps of a size allocate nothing.
  StepInput step_;
  std::vector<LogitRow> rows_;                  // of the step's logit_rows and likely_rows
  std::vector<int64_t> chunk_rows_;             // number of rows_ of each chunk
  std::vector<LogitRow*> rest_;                 // rows for ChooseRest
  std::vector<int64_t> rest_rows_;              // their indices
  std::vector<SequenceSpeculation*> drafting_;  // of the step's chunks
  std::vector<int64_t> caught_up_;              // rows of the draft model for each chunk
  EngineClock::duration drafting_time_{};       // of the draft model's steps
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_ENGINE_H_
