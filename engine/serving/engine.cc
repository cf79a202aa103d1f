#include "engine/serving/engine.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <span>
#include <utility>

namespace triptych {
namespace {

int64_t PoolBlocks(const CacheGeometry& geometry, int64_t bytes) {
  const int64_t blocks = bytes / geometry.BlockBytes();
  if (blocks < 1 || blocks > INT32_MAX) {
    throw LoadError("a key/value cache of " + std::to_string(bytes) + " bytes holds " +
                    std::to_string(blocks) + " blocks of " + std::to_string(geometry.BlockBytes()) +
                    " bytes; allowed: 1 to " + std::to_string(INT32_MAX));
  }
  return blocks;
}

SchedulerLimits Limits(const EngineOptions& options, const ModelConfig& config) {
  return {.max_batch_tokens = options.max_batch_tokens,
          .max_running = options.max_running,
          .max_waiting = options.max_waiting,
          .max_positions = config.max_position_embeddings};
}

}  // namespace

CacheGeometry MakeCacheGeometry(const ModelConfig& config, CacheFormat format,
                                int64_t block_positions) {
  CacheGeometry geometry{.block_positions = block_positions,
                         .row_bytes = {},
                         .mha_bytes_per_position =
                             config.num_hidden_layers * RowBytes(format, MhaRowElements(config))};
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    geometry.row_bytes.push_back(CacheRowBytes(config, layer, format));
  }
  return geometry;
}

Engine::Engine(std::unique_ptr<const Decoder> decoder, std::shared_ptr<const Tokenizer> tokenizer,
               const EngineOptions& options)
    : decoder_(std::move(decoder)),
      tokenizer_(std::move(tokenizer)),
      geometry_(
          MakeCacheGeometry(decoder_->config(), options.cache_format, options.block_positions)),
      pool_(PoolBlocks(geometry_, options.kv_cache_bytes)),
      storage_(pool_.total(), options.block_positions, CacheRowElements(decoder_->config()),
               at::device(decoder_->device()).dtype(ToScalarType(options.cache_format))),
      scheduler_(Limits(options, decoder_->config()), pool_, options.block_positions) {}

void Engine::Submit(Request request, std::shared_ptr<RequestSink> sink) {
  const SubmitStatus status =
      accepting_ ? scheduler_.Submit(std::move(request), sink, Sequence::Clock::now())
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

  const Workspace::Scope scope(workspace_);
  std::span<const float> logits;
  try {
    logits = Compute(chunks);
  } catch (const c10::Error& e) {  // whose what() is pages of backtrace
    Fail(chunks, e.what_without_backtrace());
    return true;
  } catch (const std::exception& e) {
    Fail(chunks, e.what());
    return true;
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    const int64_t count = batch_.chunk_logits[i] * decoder_->config().vocab_size;
    Commit(chunks[i], logits.first(count));
    logits = logits.subspan(count);
  }
  return true;
}

void Engine::Fail(const std::vector<Chunk>& chunks, const std::string& error) {
  for (const Chunk& chunk : chunks) Finish(*chunk.sequence, FinishReason::kFailed, error);
}

void Engine::AddToStep(const Sequence& sequence, int64_t begin, int64_t end) {
  const auto prompt = static_cast<int64_t>(sequence.request.prompt.size());
  const int64_t vanilla_begin = std::clamp(decoder_->vanilla_from(), begin, end);
  const int64_t vanilla_end = std::clamp(prompt, vanilla_begin, end);
  const auto add = [&](int64_t from, int64_t to, bool vanilla) {
    if (from == to) return;
    batch_.step.sequences.push_back({sequence.blocks.blocks().data(), from, to - from});
    batch_.step.vanilla.push_back(vanilla);
  };
  add(begin, vanilla_begin, false);
  add(vanilla_begin, vanilla_end, true);
  add(vanilla_end, end, false);
}

std::span<const float> Engine::Compute(const std::vector<Chunk>& chunks) {
  const auto now = Sequence::Clock::now();
  batch_.ids.clear();
  batch_.step.positions.clear();
  batch_.step.sequences.clear();
  batch_.step.vanilla.clear();
  batch_.logit_rows.clear();
  batch_.chunk_logits.clear();
  for (const Chunk& chunk : chunks) {
    Sequence& sequence = *chunk.sequence;
    if (!sequence.first_scheduled) sequence.first_scheduled = now;
    AddToStep(sequence, chunk.start, chunk.start + chunk.count);
    batch_.chunk_logits.push_back(0);
    for (int64_t p = chunk.start; p < chunk.start + chunk.count; ++p) {
      const bool scores =
          sequence.request.score_prompt && p + 1 < std::ssize(sequence.request.prompt);
      const bool samples = chunk.samples && p + 1 == chunk.start + chunk.count;
      if (scores || samples) {
        batch_.logit_rows.push_back(std::ssize(batch_.ids));
        ++batch_.chunk_logits.back();
      }
      batch_.ids.push_back(sequence.tokens[p]);
      batch_.step.positions.push_back(p);
    }
  }
  return decoder_->Step(batch_.ids, batch_.step, batch_.logit_rows, storage_, workspace_);
}

void Engine::Commit(const Chunk& chunk, std::span<const float> logits) {
  Sequence& sequence = *chunk.sequence;
  sequence.cached += chunk.count;
  if (sequence.request.score_prompt) RecordPromptLogprobs(chunk, logits);
  if (!chunk.samples) return;
  if (sequence.request.max_new_tokens == 0) {
    sequence.first_token = sequence.last_token = Sequence::Clock::now();
    const std::vector<float>& logprobs = sequence.prompt_logprobs;
    if (std::all_of(logprobs.begin(), logprobs.end(), [](float x) { return std::isfinite(x); })) {
      Finish(sequence, FinishReason::kLength);
    } else {
      Finish(sequence, FinishReason::kFailed, "the model gave no finite log-probability");
    }
  } else {
    Generate(sequence, logits.last(decoder_->config().vocab_size));
  }
}

void Engine::RecordPromptLogprobs(const Chunk& chunk, std::span<const float> logits) {
  Sequence& sequence = *chunk.sequence;
  const std::vector<int32_t>& prompt = sequence.request.prompt;
  sequence.prompt_logprobs.resize(prompt.size() - 1);
  const int64_t vocab = decoder_->config().vocab_size;
  for (int64_t p = chunk.start; !logits.empty() && p + 1 < std::ssize(prompt); ++p) {
    sequence.prompt_logprobs[p] = Logprobs(logits.first(vocab), prompt[p + 1], 0).chosen.logprob;
    logits = logits.subspan(vocab);
  }
}

void Engine::Generate(Sequence& sequence, std::span<const float> logits) {
  const Request& request = sequence.request;
  const int32_t token = sequence.sampler.Sample(logits);
  if (token < 0) {
    Finish(sequence, FinishReason::kFailed, "the model gave no finite logit to choose from");
    return;
  }
  sequence.last_token = Sequence::Clock::now();
  if (!sequence.first_token) sequence.first_token = sequence.last_token;
  sequence.tokens.push_back(token);

  Delta delta;
  delta.token = token;
  if (request.logprobs) delta.logprobs = Logprobs(logits, token, *request.logprobs);
  delta.text = sequence.stops.Push(sequence.utf8.Push(tokenizer_->Decode(token)));

  const bool ended = token == tokenizer_->end_token() && !request.ignore_eos;
  const bool full = sequence.generated() == request.max_new_tokens ||
                    std::ssize(sequence.tokens) == decoder_->config().max_position_embeddings;
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
  completion.prompt_logprobs = std::move(sequence.prompt_logprobs);
  RequestUsage& usage = completion.usage;
  usage.prompt_tokens = std::ssize(sequence.request.prompt);
  usage.generated_tokens = sequence.generated();
  const auto now = Sequence::Clock::now();
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
  return geometry_.Usage(sequence.cached, sequence.blocks.size(), sequence.blocks.peak_size());
}

KvCacheStats Engine::Stats() const {
  KvCacheStats stats;
  stats.pool_bytes = storage_.bytes();
  stats.block_positions = geometry_.block_positions;
  stats.block_bytes = geometry_.BlockBytes();
  stats.bytes_per_position = geometry_.BytesPerPosition();
  stats.total_blocks = pool_.total();
  stats.free_blocks = pool_.free();
  stats.reserved_bytes = pool_.used() * stats.block_bytes;
  stats.free_bytes = pool_.free() * stats.block_bytes;
  stats.peak_reserved_bytes = pool_.peak_used() * stats.block_bytes;
  for (const Sequence* sequence : scheduler_.Sequences()) stats.positions += sequence->cached;
  stats.used_bytes = stats.positions * stats.bytes_per_position;
  stats.mha_used_bytes = stats.positions * geometry_.mha_bytes_per_position;
  stats.running = scheduler_.running();
  stats.waiting = scheduler_.waiting();
  stats.preemptions = scheduler_.preemptions();
  return stats;
}

std::vector<SequenceStats> Engine::Sequences() const {
  std::vector<SequenceStats> all;
  for (const Sequence* sequence : scheduler_.Sequences()) {
    all.push_back({.id = sequence->request.id,
                   .state = sequence->state(),
                   .prompt_tokens = std::ssize(sequence->request.prompt),
                   .generated_tokens = sequence->generated(),
                   .preemptions = sequence->preemptions,
                   .kv_cache = Usage(*sequence)});
  }
  return all;
}

}  // namespace triptych
