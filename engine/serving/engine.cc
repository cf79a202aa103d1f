#include "engine/serving/engine.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <exception>
#include <span>
#include <utility>

namespace triptych::serving {
namespace {

// Approximate cost of choosing among logits, in multiply-adds per logit.
constexpr int64_t kLogitWork = 32;

SchedulerLimits Limits(const EngineOptions& options, const BackendInfo& info) {
  return {
      .max_batch_tokens = options.max_batch_tokens,
      .max_running = options.max_running,
      .max_waiting = options.max_waiting,
      .max_waiting_tokens = options.max_waiting_tokens,
      .max_positions = info.max_positions,
      .expand_from = info.expand_from,
      .prompt_rows_from = info.prompt_rows_differ ? std::optional<int64_t>(0) : info.expand_from,
      .prefix_cache = options.prefix_cache};
}

// Events of the prefix cache. RestartKvEvents adds at most one for each block: it fits.
std::unique_ptr<KvEventLog> MakeKvEvents(const EngineOptions& options, const BackendInfo& info) {
  constexpr int64_t kKeptEvents = int64_t{1} << 14;
  if (options.kv_events == 0) return nullptr;
  return std::make_unique<KvEventLog>(info.geometry.block_positions, 2 * info.blocks + kKeptEvents,
                                      options.kv_events);
}

bool Contains(std::span<const int32_t> tokens, int32_t token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

BackendInfo InfoOf(const ModelBackend& model, const DraftModel* draft_model) {
  BackendInfo info = model.info();
  if (draft_model != nullptr) {
    assert(draft_model->info().blocks == info.blocks);
    info.geometry.Add(draft_model->info().geometry);
    info.cache_bytes += draft_model->info().cache_bytes;
  }
  return info;
}

}  // namespace

uint64_t ChoiceSeed(uint64_t seed, int32_t choice) {
  if (choice == 0) return seed;
  // SplitMix64 (Steele, Lea and Flood 2014): seeds of two choices are equal with probability 2^-64.
  uint64_t x = seed + static_cast<uint64_t>(choice) * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

Engine::Engine(std::unique_ptr<ModelBackend> model, std::shared_ptr<const Tokenizer> tokenizer,
               const EngineOptions& options, Clock clock,
               std::shared_ptr<kernels::KernelContext> context,
               std::unique_ptr<ModelBackend> draft_model)
    : model_(std::move(model)),
      tokenizer_(std::move(tokenizer)),
      draft_model_(draft_model ? std::make_unique<DraftModel>(std::move(draft_model),
                                                              model_->info().vocab_size)
                               : nullptr),
      info_(InfoOf(*model_, draft_model_.get())),
      pool_(info().blocks),
      kv_events_(MakeKvEvents(options, info())),
      scheduler_(Limits(options, info()), pool_, info().geometry.block_positions,
                 info().geometry.Groups()),
      queue_timeout_(options.queue_timeout),
      clock_(std::move(clock)),
      context_(std::move(context)),
      made_(clock_()),
      throttle_(options.max_slowdown),
      speculation_(info().verifies_drafts ? options.speculation : Speculation::kOff),
      make_drafter_(options.make_drafter) {
  if (kv_events_ != nullptr) scheduler_.Observe(*kv_events_);
  Publish();
}

void Engine::Submit(Request request, const std::shared_ptr<RequestSink>& sink) {
  changed_ = true;
  if (!speculation_.on()) request.prediction = {};  // holds no memory, and no room in the queue
  const SubmitStatus status =
      accepting_ ? scheduler_.Submit(std::move(request), sink) : SubmitStatus::kStopping;
  if (status == SubmitStatus::kAccepted) {
    ++counts_.accepted;
  } else {
    ++counts_.refused;
    sink->OnRejected(status);
  }
}

void Engine::Cancel(const std::string& id) {
  changed_ = true;
  for (Sequence* sequence : scheduler_.Find(id)) Finish(*sequence, FinishReason::kCancelled);
}

void Engine::CancelAll() {
  while (!scheduler_.empty()) {
    Cancel(scheduler_.Sequences({.limit = 1}).front()->request->id);
  }
}

void Engine::FailAll(const std::string& error) {
  changed_ = true;
  StopAccepting();
  while (!scheduler_.empty()) {
    const std::string id = scheduler_.Sequences({.limit = 1}).front()->request->id;
    for (Sequence* sequence : scheduler_.Find(id)) Finish(*sequence, FinishReason::kFailed, error);
  }
}

void Engine::RefuseLate() {
  if (queue_timeout_.count() == 0) return;
  const auto late = clock_() - queue_timeout_;
  for (const Sequence* first = scheduler_.OldestWaiting();
       first != nullptr && first->request->arrived < late; first = scheduler_.OldestWaiting()) {
    const std::shared_ptr<RequestSink> sink = first->sink;
    for (const Sequence* choice : scheduler_.Find(first->request->id)) scheduler_.Remove(*choice);
    ++counts_.refused;
    sink->OnRejected(SubmitStatus::kQueueTimeout);
  }
}

PrefillThrottle::Duration Engine::decode_step() const {
  return scheduler_.decoding() > 0 ? throttle_.decode_step() : PrefillThrottle::Duration{};
}

bool Engine::Step(PrefillThrottle::Duration others) {
  changed_ = true;
  RefuseLate();
  const auto start = clock_();
  const int64_t least = std::max(info().least_prefill_rows,
                                 scheduler_.expanding() ? Scheduler::kLeastExpandingRows : 1);
  const int64_t prompt_rows = throttle_.PromptRows(scheduler_.decoding(), others, least);
  const std::vector<Chunk>& chunks = scheduler_.Schedule(start, prompt_rows);
  if (chunks.empty()) return false;

  int64_t decode_rows = 0, drafted = 0;
  drafting_time_ = {};
  for (const Chunk& chunk : chunks) {
    if (chunk.sequence->decodes()) ++decode_rows;
    if (!chunk.sequence->first_scheduled) Begin(*chunk.sequence, start);
  }
  try {
    // If prefill has to wait, the step measures the time of one that only decodes.
    if (prompt_rows > 0) drafted = PlanDrafts(chunks, others);
    const std::span<const float> logits = Compute(chunks);
    const int64_t looked_at = std::ssize(step_.logit_rows) * info().vocab_size +
                              std::ssize(step_.likely_rows) * info().likely_tokens;
    context_->pool.ForEach(std::ssize(rows_), looked_at * kLogitWork,
                           [&](int64_t i) { ChooseFrom(logits, i); });
    ChooseRest();
  } catch (const DeviceLost&) {
    throw;
  } catch (const std::exception& e) {
    for (const Chunk& chunk : chunks) Fail(*chunk.sequence, e.what());
    return true;
  }
  std::span<LogitRow> rows = rows_;
  for (size_t i = 0; i < chunks.size(); ++i) {
    Commit(chunks[i], rows.first(chunk_rows_[i]));
    rows = rows.subspan(chunk_rows_[i]);
  }
  const auto took = clock_() - start, own = took - drafting_time_;
  const int64_t prefilled = std::ssize(step_.ids) - decode_rows - drafted;
  if (drafted == 0) throttle_.Record(decode_rows, prefilled, own);
  if (prefilled == 0) speculation_.Record(std::ssize(step_.ids), own);
  metrics_.step_time.Add(took);
  metrics_.step_sequences.Add(static_cast<double>(chunks.size()));
  metrics_.step_tokens.Add(static_cast<double>(step_.ids.size()));
  return true;
}

void Engine::Begin(Sequence& sequence, EngineClock::time_point now) {
  sequence.first_scheduled = now;
  sequence.ends = sequence.request->stop_tokens;
  if (!sequence.request->ignore_eos) {
    const std::span<const int32_t> ends = tokenizer_->end_tokens();
    sequence.ends.insert(sequence.ends.end(), ends.begin(), ends.end());
  }
  metrics_.queue_time.Add(now - sequence.request->arrived);
  if (scheduler_.LooksUp(sequence)) {
    metrics_.prefix_queries.Add(sequence.prompt_length());
    metrics_.prefix_hits.Add(sequence.cached_prompt_tokens);
  }
  if (sequence.choice == 0) sequence.sink->OnScheduled();
}

std::span<const float> Engine::Compute(const std::vector<Chunk>& chunks) {
  step_.ids.clear();
  step_.sequences.clear();
  step_.logit_rows.clear();
  step_.likely_rows.clear();
  step_.likely_scales.clear();
  rows_.clear();
  chunk_rows_.clear();
  for (const Chunk& chunk : chunks) {
    Sequence& sequence = *chunk.sequence;
    const int64_t end = chunk.start + chunk.count, prompt = sequence.prompt_length();
    const int64_t length = sequence.length();
    if (!sequence.scratch && end < prompt) sequence.scratch = model_->MakePromptScratch(prompt);
    step_.sequences.push_back({.blocks = sequence.blocks.blocks().data(),
                               .start = chunk.start,
                               .count = chunk.count,
                               .prompt = prompt,
                               .scratch = sequence.scratch.get()});
    chunk_rows_.push_back(0);
    for (int64_t p = chunk.start; p < end; ++p) {
      const bool scores =
          sequence.request->prompt_logprobs && sequence.choice == 0 && p + 1 < prompt;
      const int32_t draft = p < length ? -1 : sequence.speculation.draft.tokens[p - length];
      const bool samples = chunk.samples && p + 1 >= length;
      if (scores || samples) {
        const bool likely = !scores && UsesLikely(sequence);
        std::vector<int64_t>& wanted = likely ? step_.likely_rows : step_.logit_rows;
        if (likely) step_.likely_scales.push_back(sequence.sampler.likely_scale());
        rows_.push_back({.sequence = &sequence,
                         .position = p,
                         .likely = likely,
                         .index = std::ssize(wanted),
                         .logprobs = {},
                         .draft = draft});
        wanted.push_back(std::ssize(step_.ids));
        ++chunk_rows_.back();
      }
      step_.ids.push_back(p < length ? sequence.tokens[p] : draft);
    }
  }
  return model_->Step(step_);
}

bool Engine::UsesLikely(const Sequence& sequence) const {
  const int64_t tokens = info().likely_tokens;
  const Request& request = *sequence.request;
  if (tokens == 0 || request.max_new_tokens == 0 || sequence.matcher) return false;
  return sequence.sampler.UsesLikely(tokens, std::ssize(sequence.ends),
                                     request.logprobs.value_or(0));
}

bool Engine::EndsText(const Sequence& sequence, int32_t token) const {
  return Contains(sequence.ends, token) ||
         (sequence.matcher && Contains(tokenizer_->end_tokens(), token));
}

std::span<const int32_t> Engine::Forbidden(const LogitRow& row) {
  const Sequence& sequence = *row.sequence;
  const int64_t generated = row.position + 1 - sequence.prompt_length();
  const bool may_end = generated >= sequence.request->min_new_tokens &&
                       (!sequence.matcher || sequence.matcher->MayEnd());
  return may_end ? std::span<const int32_t>() : std::span(sequence.ends);
}

int32_t Engine::ChooseByGrammar(std::span<const float> logits, const LogitRow& row) const {
  Sequence& sequence = *row.sequence;
  const grammar::Matcher& matcher = *sequence.matcher;
  const auto mask = sequence.request->grammar->MaskOf(matcher);
  if (mask == nullptr) return -1;
  ChoosableTokens choosable{.mask = *mask, .also = {}};
  if (matcher.MayEnd()) choosable.also = sequence.ends;
  const int32_t token = sequence.sampler.Sample(logits, Forbidden(row), &choosable);
  // Nothing else can follow, by the grammar or by what the request allows.
  return token < 0 && matcher.MayEnd() ? tokenizer_->end_token() : token;
}

void Engine::ChooseFrom(std::span<const float> logits, int64_t first) {
  if (rows_[first].draft >= 0) return;  // chosen after the row before it
  Choose(logits, rows_[first]);
  for (int64_t i = first + 1; i < std::ssize(rows_); ++i) {
    const LogitRow& before = rows_[i - 1];
    if (rows_[i].draft < 0 || rows_[i].draft != before.token || before.complete) return;
    Choose(logits, rows_[i]);
  }
}

void Engine::Choose(std::span<const float> logits, LogitRow& row) const {
  Sequence& sequence = *row.sequence;
  const Request& request = *sequence.request;
  if (row.likely) {
    const LikelyTokens& likely = model_->likely()[row.index];
    const auto token = sequence.sampler.Sample(likely, Forbidden(row));
    row.needs_rest = !token;
    row.token = token.value_or(-1);
    if (request.logprobs && row.token >= 0) {
      row.logprobs = Logprobs(likely, row.token, *request.logprobs);
    }
    return;
  }
  const auto vocab = static_cast<size_t>(info().vocab_size);
  logits = logits.subspan(static_cast<size_t>(row.index) * vocab, vocab);
  const int64_t next = row.position + 1;
  if (next < sequence.prompt_length()) {
    if (row.position < sequence.prompt_scored) return;  // recomputed after a preemption
    row.logprobs = Logprobs(logits, request.prompt[next], *request.prompt_logprobs);
  } else if (request.max_new_tokens > 0) {
    row.token = sequence.matcher ? ChooseByGrammar(logits, row)
                                 : sequence.sampler.Sample(logits, Forbidden(row));
    if (request.logprobs && row.token >= 0) {
      row.logprobs = Logprobs(logits, row.token, *request.logprobs);
    }
    if (!sequence.matcher || row.token < 0) return;
    if (EndsText(sequence, row.token)) {
      row.complete = true;
    } else {
      const std::string bytes = tokenizer_->Decode(row.token);
      sequence.matcher->Advance(bytes.empty() ? tokenizer_->SpecialText(row.token) : bytes);
      row.complete = sequence.matcher->complete();
    }
  }
}

void Engine::ChooseRest() {
  rest_rows_.clear();
  rest_.clear();
  for (LogitRow& row : rows_) {
    if (!row.needs_rest) continue;
    rest_.push_back(&row);
    rest_rows_.push_back(row.index);
  }
  if (rest_.empty()) return;
  const std::span<const float> logits = model_->FetchLogits(rest_rows_);
  const int64_t count = std::ssize(rest_), vocab = info().vocab_size;
  context_->pool.ForEach(count, count * vocab * kLogitWork, [&](int64_t i) {
    LogitRow& row = *rest_[i];
    Sequence& sequence = *row.sequence;
    const std::span<const float> whole = logits.subspan(i * vocab, vocab);
    row.token = sequence.sampler.SampleRest(whole, model_->likely()[row.index], Forbidden(row));
    const std::optional<int32_t>& logprobs = sequence.request->logprobs;
    if (logprobs && row.token >= 0) row.logprobs = Logprobs(whole, row.token, *logprobs);
  });
}

void Engine::Commit(const Chunk& chunk, std::span<LogitRow> rows) {
  Sequence& sequence = *chunk.sequence;
  Chunk own = chunk;  // without its draft
  own.count -= std::exchange(own.drafted, 0);
  scheduler_.Advance(own);
  if (!ReportPromptLogprobs(sequence, rows)) {
    Fail(sequence, "the model gave no finite log-probability");
    return;
  }
  if (!chunk.samples) return;
  if (sequence.request->max_new_tokens == 0) {
    sequence.first_token = sequence.last_token = clock_();
    Finish(sequence, FinishReason::kLength);
  } else {
    Deliver(sequence, rows.last(1 + chunk.drafted));
  }
}

bool Engine::ReportPromptLogprobs(Sequence& sequence, std::span<LogitRow> rows) {
  std::vector<TokenLogprobs> logprobs;
  for (LogitRow& row : rows) {
    if (row.position + 1 >= sequence.prompt_length()) break;  // the row that samples
    if (!row.logprobs) continue;
    if (!std::isfinite(row.logprobs->chosen.logprob)) return false;
    logprobs.push_back(*std::move(row.logprobs));
    ++sequence.prompt_scored;
  }
  if (!logprobs.empty()) sequence.sink->OnPromptLogprobs(std::move(logprobs));
  return true;
}

std::string Engine::TextOf(Sequence& sequence, int32_t token, bool show_special) const {
  const std::string bytes = sequence.stream.Push(*tokenizer_, token);
  if (!bytes.empty()) return sequence.stops.Push(sequence.utf8.Push(bytes));
  if (!show_special && sequence.request->stop.empty()) return "";
  const std::string special(tokenizer_->SpecialText(token));
  return show_special ? sequence.stops.Push(sequence.utf8.Push(special))
                      : sequence.stops.PushHidden(special);
}

bool Engine::Generate(Sequence& sequence, LogitRow& row) {
  const Request& request = *sequence.request;
  const int32_t token = row.token;
  if (token < 0) {
    Fail(sequence, sequence.matcher
                       ? "no token that can be chosen continues a text of the grammar, "
                         "or the text so far has too many readings"
                       : "the model gave no finite logit to choose from");
    return false;
  }
  const auto now = clock_();
  if (sequence.first_token) {
    const auto wait = now - sequence.last_token;
    sequence.longest_wait = std::max(sequence.longest_wait, wait);
    metrics_.inter_token_time.Add(wait);
  } else {
    sequence.first_token = now;
    sequence.stream.Skip(*tokenizer_, request.prompt);
    metrics_.time_to_first_token.Add(now - request.arrived);
  }
  sequence.last_token = now;
  sequence.tokens.push_back(token);

  Delta delta;
  delta.choice = sequence.choice;
  delta.token = token;
  delta.logprobs = std::move(row.logprobs);
  const bool ended = Contains(sequence.ends, token);
  const bool is_end_token = Contains(tokenizer_->end_tokens(), token);
  const bool complete = row.complete && !ended;
  sequence.stops.SetActive(sequence.generated() > request.min_new_tokens);
  // An end token is no text, even if a tokenizer needs it for texts, too.
  if (request.ignore_eos || !is_end_token) {
    const bool shown = request.show_special || Contains(request.shown_tokens, token);
    delta.text = TextOf(sequence, token, shown && !ended);
  }
  const bool full = sequence.generated() == request.max_new_tokens ||
                    std::ssize(sequence.tokens) == info().max_positions;
  if (ended || complete || full) {
    delta.text += sequence.stops.Push(sequence.utf8.Flush());
    delta.text += sequence.stops.Flush();  // may decide on a match
  }
  const std::optional<std::string>& matched = sequence.stops.matched();
  if (matched && request.include_stop) delta.text += *matched;
  const bool stopped = ended || complete || matched.has_value();
  sequence.sink->OnDelta(std::move(delta));
  if (stopped || full) Finish(sequence, stopped ? FinishReason::kStop : FinishReason::kLength);
  return !stopped && !full;
}

void Engine::Fail(Sequence& sequence, const std::string& error) {
  const std::vector<Sequence*> choices = scheduler_.Find(sequence.request->id);
  for (Sequence* choice : choices) {
    if (choice == &sequence || choice->stage == Sequence::Stage::kHeldBack) {
      Finish(*choice, FinishReason::kFailed, error);
    }
  }
}

void Engine::Finish(Sequence& sequence, FinishReason reason, const std::string& error) {
  if (!sequence.speculation.draft.tokens.empty()) scheduler_.ReleaseDraftedBlocks(sequence);
  Completion completion;
  completion.choice = sequence.choice;
  completion.reason = reason;
  completion.error = error;
  completion.stop = sequence.stops.matched();
  completion.seed = sequence.seed;
  RequestUsage& usage = completion.usage;
  usage.prompt_tokens = sequence.prompt_length();
  usage.cached_prompt_tokens = sequence.cached_prompt_tokens;
  usage.generated_tokens = sequence.generated();
  usage.drafted_tokens = sequence.speculation.drafted;
  usage.accepted_tokens = sequence.speculation.accepted;
  const auto now = clock_();
  const auto scheduled = sequence.first_scheduled.value_or(now);
  usage.queue_time = scheduled - sequence.request->arrived;
  usage.prefill_time = sequence.first_token.value_or(now) - scheduled;
  if (sequence.first_token) {
    usage.decode_time = sequence.last_token - *sequence.first_token;
    if (usage.generated_tokens > 0) {
      usage.first_token_time = *sequence.first_token - sequence.request->arrived;
    }
  }
  usage.mean_wait = usage.decode_time / std::max<int64_t>(usage.generated_tokens - 1, 1);
  usage.longest_wait = sequence.longest_wait;
  usage.total_time = now - sequence.request->arrived;
  usage.preemptions = sequence.preemptions;
  usage.kv_cache = Usage(sequence);

  const std::shared_ptr<RequestSink> sink = sequence.sink;
  // Blocks are released before the client learns of the end.
  const std::unique_ptr<Sequence> removed = scheduler_.Remove(sequence);
  removed->blocks.Release();
  completion.load = {.running = scheduler_.running(),
                     .waiting = scheduler_.waiting(),
                     .kv_cache_utilization = static_cast<double>(pool_.allocated()) /
                                             static_cast<double>(pool_.total())};
  Count(completion, scheduler_.Find(removed->request->id).empty());
  sink->OnFinish(std::move(completion));
}

void Engine::Count(const Completion& completion, bool last_choice) {
  const RequestUsage& usage = completion.usage;
  counts_.prompt_tokens += usage.prompt_tokens;
  counts_.cached_prompt_tokens += usage.cached_prompt_tokens;
  counts_.generated_tokens += usage.generated_tokens;
  metrics_.end_to_end_time.Add(usage.total_time);
  metrics_.cache_bytes.Add(static_cast<double>(usage.kv_cache.used_bytes));
  if (!last_choice) return;
  switch (completion.reason) {
    case FinishReason::kStop:
    case FinishReason::kLength:
      ++counts_.finished;
      break;
    case FinishReason::kCancelled:
      ++counts_.cancelled;
      break;
    case FinishReason::kFailed:
      ++counts_.failed;
      break;
  }
}

KvCacheUsage Engine::Usage(const Sequence& sequence) const {
  const BlockTable& blocks = sequence.blocks;
  return info().geometry.Usage(sequence.computed, blocks.dropped(), blocks.size(), blocks.shared(),
                               blocks.peak_size());
}

KvCacheStats Engine::Stats() const {
  const CacheGeometry& geometry = info().geometry;
  KvCacheStats stats;
  stats.uptime = clock_() - made_;
  stats.pool_bytes = info().cache_bytes;
  stats.block_positions = geometry.block_positions;
  stats.block_bytes = geometry.BlockBytes();
  stats.bytes_per_position = geometry.BytesPerPosition();
  stats.total_blocks = pool_.total();
  stats.free_blocks = pool_.free();
  stats.evictable_blocks = pool_.evictable();
  stats.evicted_blocks = pool_.evictions();
  stats.allocated_bytes = pool_.allocated() * stats.block_bytes;
  stats.shared_bytes = pool_.shared() * stats.block_bytes;
  stats.evictable_bytes = pool_.evictable() * stats.block_bytes;
  stats.free_bytes = pool_.free() * stats.block_bytes;
  stats.peak_allocated_bytes = pool_.peak_allocated() * stats.block_bytes;
  stats.positions = scheduler_.computed_positions();
  stats.used_bytes = scheduler_.computed_rows() * stats.block_bytes / stats.block_positions;
  stats.mha_used_bytes = stats.positions * geometry.mha_bytes_per_position;
  stats.running = scheduler_.running();
  stats.waiting = scheduler_.waiting();
  stats.preemptions = scheduler_.preemptions();
  stats.requests = counts_;
  const Histogram& first_token = metrics_.time_to_first_token;
  stats.requests.first_tokens = first_token.total();
  stats.requests.first_token_time = std::chrono::round<std::chrono::nanoseconds>(
      std::chrono::duration<double>(first_token.sum()));
  stats.requests.sampled_tokens = first_token.total() + metrics_.inter_token_time.total();
  return stats;
}

void Engine::Publish() {
  if (!std::exchange(changed_, false)) return;
  if (kv_events_ != nullptr) kv_events_->Publish(clock_());
  const KvCacheStats stats = Stats();
  const MutexLock lock(published_mutex_);
  published_ = stats;
}

void Engine::RestartKvEvents() {
  const auto now = clock_();
  kv_events_->Publish(now);
  kv_events_->Restart();
  scheduler_.prefixes().AddAll(*kv_events_, now);
  kv_events_->Publish(now);
}

KvCacheStats Engine::Published() const {
  const MutexLock lock(published_mutex_);
  return published_;
}

SequenceStats Engine::StatsOf(const Sequence& sequence) const {
  return {.id = sequence.request->id,
          .number = sequence.request->number + sequence.choice,
          .order = sequence.order,
          .choice = sequence.choice,
          .client = sequence.request->client,
          .state = sequence.state(),
          .prompt_tokens = sequence.prompt_length(),
          .cached_prompt_tokens = sequence.cached_prompt_tokens,
          .generated_tokens = sequence.generated(),
          .preemptions = sequence.preemptions,
          .kv_cache = Usage(sequence)};
}

std::vector<SequenceStats> Engine::Sequences(const SequenceQuery& query) const {
  std::vector<SequenceStats> all;
  for (const Sequence* sequence : scheduler_.Sequences(query)) all.push_back(StatsOf(*sequence));
  return all;
}

BlockMap Engine::MapBlocks() const {
  std::vector<const BlockTable*> tables;
  BlockMap map;
  for (const Sequence* sequence : scheduler_.Sequences()) {
    if (sequence->blocks.size() == 0) continue;
    if (map.holders.size() == BlockMap::kMaxHolders) break;
    map.holders.push_back(StatsOf(*sequence));
    tables.push_back(&sequence->blocks);
  }
  map.Draw(pool_, tables);
  return map;
}

}  // namespace triptych::serving
