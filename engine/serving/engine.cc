#include "engine/serving/engine.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <span>
#include <utility>

namespace triptych {
namespace {

SchedulerLimits Limits(const EngineOptions& options, const ServingModelInfo& info) {
  return {.max_batch_tokens = options.max_batch_tokens,
          .max_running = options.max_running,
          .max_waiting = options.max_waiting,
          .max_positions = info.max_positions};
}

}  // namespace

Engine::Engine(std::unique_ptr<ServingModel> model, std::shared_ptr<const Tokenizer> tokenizer,
               const EngineOptions& options)
    : model_(std::move(model)),
      tokenizer_(std::move(tokenizer)),
      pool_(info().blocks),
      scheduler_(Limits(options, info()), pool_, info().geometry.block_positions) {}

void Engine::Submit(Request request, const std::shared_ptr<RequestSink>& sink) {
  const SubmitStatus status = accepting_
                                  ? scheduler_.Submit(std::move(request), sink, EngineClock::now())
                                  : SubmitStatus::kStopping;
  if (status != SubmitStatus::kAccepted) sink->OnRejected(status);
}

void Engine::Cancel(const std::string& id) {
  if (Sequence* sequence = scheduler_.Find(id)) Finish(*sequence, FinishReason::kCancelled);
}

void Engine::CancelAll() {
  for (const SequenceStats& sequence : Sequences()) Cancel(sequence.id);
}

bool Engine::Step() {
  const std::vector<Chunk>& chunks = scheduler_.Schedule();
  if (chunks.empty()) return false;

  std::span<const float> logits;
  try {
    logits = Compute(chunks);
  } catch (const std::exception& e) {
    Fail(chunks, e.what());
    return true;
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    const int64_t count = chunk_logits_[i] * info().vocab_size;
    Commit(chunks[i], logits.first(count));
    logits = logits.subspan(count);
  }
  return true;
}

void Engine::Fail(const std::vector<Chunk>& chunks, const std::string& error) {
  for (const Chunk& chunk : chunks) Finish(*chunk.sequence, FinishReason::kFailed, error);
}

std::span<const float> Engine::Compute(const std::vector<Chunk>& chunks) {
  const auto now = EngineClock::now();
  step_.ids.clear();
  step_.sequences.clear();
  step_.logit_rows.clear();
  chunk_logits_.clear();
  for (const Chunk& chunk : chunks) {
    Sequence& sequence = *chunk.sequence;
    if (!sequence.first_scheduled) {
      sequence.first_scheduled = now;
      sequence.sink->OnScheduled();
    }
    const auto prompt = std::ssize(sequence.request.prompt);
    const int64_t end = chunk.start + chunk.count;
    step_.sequences.push_back({sequence.blocks.blocks().data(), chunk.start, chunk.count, prompt});
    chunk_logits_.push_back(0);
    for (int64_t p = chunk.start; p < end; ++p) {
      const bool scores = sequence.request.prompt_logprobs && p + 1 < prompt;
      const bool samples = chunk.samples && p + 1 == end;
      if (scores || samples) {
        step_.logit_rows.push_back(std::ssize(step_.ids));
        ++chunk_logits_.back();
      }
      step_.ids.push_back(sequence.tokens[p]);
    }
  }
  return model_->Step(step_);
}

void Engine::Commit(const Chunk& chunk, std::span<const float> logits) {
  Sequence& sequence = *chunk.sequence;
  sequence.cached += chunk.count;
  if (sequence.request.prompt_logprobs && !ReportPromptLogprobs(chunk, logits)) {
    Finish(sequence, FinishReason::kFailed, "the model gave no finite log-probability");
    return;
  }
  if (!chunk.samples) return;
  if (sequence.request.max_new_tokens == 0) {
    sequence.first_token = sequence.last_token = EngineClock::now();
    Finish(sequence, FinishReason::kLength);
  } else {
    Generate(sequence, logits.last(info().vocab_size));
  }
}

bool Engine::ReportPromptLogprobs(const Chunk& chunk, std::span<const float> logits) {
  Sequence& sequence = *chunk.sequence;
  const std::vector<int32_t>& prompt = sequence.request.prompt;
  std::vector<TokenLogprobs> logprobs;
  const int64_t vocab = info().vocab_size;
  for (int64_t p = chunk.start; !logits.empty() && p + 1 < std::ssize(prompt); ++p) {
    if (p == sequence.prompt_scored) {  // preemption computes some again
      logprobs.push_back(
          Logprobs(logits.first(vocab), prompt[p + 1], *sequence.request.prompt_logprobs));
      if (!std::isfinite(logprobs.back().chosen.logprob)) return false;
      ++sequence.prompt_scored;
    }
    logits = logits.subspan(vocab);
  }
  if (!logprobs.empty()) sequence.sink->OnPromptLogprobs(std::move(logprobs));
  return true;
}

void Engine::Generate(Sequence& sequence, std::span<const float> logits) {
  const Request& request = sequence.request;
  const int32_t token = sequence.sampler.Sample(logits);
  if (token < 0) {
    Finish(sequence, FinishReason::kFailed, "the model gave no finite logit to choose from");
    return;
  }
  sequence.last_token = EngineClock::now();
  if (!sequence.first_token) sequence.first_token = sequence.last_token;
  sequence.tokens.push_back(token);

  Delta delta;
  delta.token = token;
  if (request.logprobs) delta.logprobs = Logprobs(logits, token, *request.logprobs);
  delta.text = sequence.stops.Push(sequence.utf8.Push(tokenizer_->Decode(token)));

  const bool ended = token == tokenizer_->end_token() && !request.ignore_eos;
  const bool full = sequence.generated() == request.max_new_tokens ||
                    std::ssize(sequence.tokens) == info().max_positions;
  if (ended || full) {
    delta.text += sequence.stops.Push(sequence.utf8.Flush());
    delta.text += sequence.stops.Flush();  // may decide for a match
  }
  const bool stopped = ended || sequence.stops.matched().has_value();
  sequence.sink->OnDelta(std::move(delta));
  if (stopped || full) Finish(sequence, stopped ? FinishReason::kStop : FinishReason::kLength);
}

void Engine::Finish(Sequence& sequence, FinishReason reason, std::string error) {
  Completion completion;
  completion.reason = reason;
  completion.error = std::move(error);
  completion.stop = sequence.stops.matched();
  completion.seed = sequence.request.seed;
  RequestUsage& usage = completion.usage;
  usage.prompt_tokens = std::ssize(sequence.request.prompt);
  usage.generated_tokens = sequence.generated();
  const auto now = EngineClock::now();
  const auto scheduled = sequence.first_scheduled.value_or(now);
  usage.queue_time = scheduled - sequence.arrived;
  usage.prefill_time = sequence.first_token.value_or(now) - scheduled;
  if (sequence.first_token) usage.decode_time = sequence.last_token - *sequence.first_token;
  usage.preemptions = sequence.preemptions;
  usage.kv_cache = Usage(sequence);

  const std::shared_ptr<RequestSink> sink = sequence.sink;
  scheduler_.Remove(sequence.request.id);  // blocks are free before the client can know
  sink->OnFinish(std::move(completion));
}

KvCacheUsage Engine::Usage(const Sequence& sequence) const {
  return info().geometry.Usage(sequence.cached, sequence.blocks.size(),
                               sequence.blocks.peak_size());
}

KvCacheStats Engine::Stats() const {
  const CacheGeometry& geometry = info().geometry;
  KvCacheStats stats;
  stats.pool_bytes = info().cache_bytes;
  stats.block_positions = geometry.block_positions;
  stats.block_bytes = geometry.BlockBytes();
  stats.bytes_per_position = geometry.BytesPerPosition();
  stats.total_blocks = pool_.total();
  stats.free_blocks = pool_.free();
  stats.reserved_bytes = pool_.used() * stats.block_bytes;
  stats.free_bytes = pool_.free() * stats.block_bytes;
  stats.peak_reserved_bytes = pool_.peak_used() * stats.block_bytes;
  for (const Sequence* sequence : scheduler_.Sequences()) stats.positions += sequence->cached;
  stats.used_bytes = stats.positions * stats.bytes_per_position;
  stats.mha_used_bytes = stats.positions * geometry.mha_bytes_per_position;
  stats.running = scheduler_.running();
  stats.waiting = scheduler_.waiting();
  stats.preemptions = scheduler_.preemptions();
  return stats;
}

std::vector<SequenceStats> Engine::Sequences(const SequenceQuery&) const {
  std::vector<SequenceStats> all;
  for (const Sequence* sequence : scheduler_.Sequences()) {
    all.push_back({.id = sequence->request.id,
                   .number = sequence->request.number,
                   .choice = 0,
                   .client = sequence->request.client,
                   .state = sequence->state(),
                   .prompt_tokens = std::ssize(sequence->request.prompt),
                   .cached_prompt_tokens = 0,
                   .generated_tokens = sequence->generated(),
                   .preemptions = sequence->preemptions,
                   .kv_cache = Usage(*sequence)});
  }
  return all;
}

}  // namespace triptych
