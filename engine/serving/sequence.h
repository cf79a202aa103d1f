// One choice of a live request: its tokens, cache blocks and progress.
#ifndef TRIPTYCH_ENGINE_SERVING_SEQUENCE_H_
#define TRIPTYCH_ENGINE_SERVING_SEQUENCE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/backend/model_backend.h"
#include "engine/grammar/matcher.h"
#include "engine/kv_cache/block_table.h"
#include "engine/kv_cache/prefix_cache.h"
#include "engine/serving/request.h"
#include "engine/serving/speculation.h"
#include "engine/serving/stats.h"
#include "engine/text/text_stream.h"
#include "engine/text/tokenizer.h"

namespace triptych::serving {

struct Sequence {
  Sequence(std::shared_ptr<const Request> request_in, int32_t choice_in, uint64_t order_in,
           std::shared_ptr<RequestSink> sink_in, BlockPool& pool, int64_t block_positions,
           const LayerGroups& groups)
      : request(std::move(request_in)),
        choice(choice_in),
        order(order_in),
        seed(ChoiceSeed(request->seed, choice_in)),
        sink(std::move(sink_in)),
        blocks(pool, block_positions, groups),
        sampler(request->sampling, seed, request->prompt),
        stops(request->stop) {
    if (request->grammar) matcher = request->grammar->Start();
  }

  int64_t prompt_length() const { return std::ssize(request->prompt); }
  int64_t length() const { return tokens.empty() ? prompt_length() : std::ssize(tokens); }
  int64_t generated() const { return length() - prompt_length(); }
  // True if every token except the last has its row: the next step samples.
  bool decodes() const { return generated() > 0 && computed + 1 >= length(); }
  SequenceState state() const {
    if (!running) return SequenceState::kWaiting;
    return decodes() ? SequenceState::kDecode : SequenceState::kPrefill;
  }

  const std::shared_ptr<const Request> request;
  const int32_t choice;
  const uint64_t order;  // of submission; unique
  const uint64_t seed;
  const std::shared_ptr<RequestSink> sink;

  // Owned by the scheduler, except that the engine appends to `tokens`.
  std::vector<int32_t> tokens;  // prompt, then generated; empty until first admitted
  BlockTable blocks;
  int64_t reserved = 0;  // blocks, in addition to those in its table
  int64_t computed = 0;  // positions whose rows are written
  // Positions for whose tokens the draft model has written its rows. The engine changes it, too.
  int64_t draft_rows = 0;
  int32_t draft_block = 0;  // in which it wrote the last of these rows
  // Set while the prompt is computed, if the model keeps anything of it. Made by the engine.
  std::unique_ptr<PromptScratch> scratch;
  bool running = false;
  int64_t preemptions = 0;
  // Number of its first blocks that are registered in the prefix cache, and the id of the last one,
  // of the first group of layers.
  int64_t registered_blocks = 0;
  PrefixCache::Prefix last_registered = PrefixCache::kShared;
  // The prefix before its first block; absent if its blocks are not registered.
  std::optional<PrefixCache::Prefix> root;
  int64_t cached_prompt_tokens = 0;  // prefix hits
  bool recomputes =
      false;  // its rows were released before; prefix hits may be its own, and do not count
  // kQueued: never admitted. kHeldBack: waits until choice 0 has computed the prompt.
  enum class Stage { kQueued, kHeldBack, kAdmitted } stage = Stage::kQueued;
  EngineClock::time_point turn;  // in the queue, unless its client's last turn was too recent
  std::list<Sequence*>::iterator admission;  // valid if admitted

  // Owned by the engine.
  Sampler sampler;
  std::optional<grammar::Matcher> matcher;  // of the generated text, if the request has a grammar
  TokenStream stream;
  Utf8Stream utf8;
  StopStrings stops;
  SequenceSpeculation speculation;
  std::vector<int32_t> ends;  // the tokens that end it
  int64_t prompt_scored = 0;  // tokens of prompt[1:] whose logprobs were reported
  std::optional<EngineClock::time_point> first_scheduled;
  std::optional<EngineClock::time_point> first_token;
  EngineClock::time_point last_token;
  EngineClock::duration longest_wait{};  // between two tokens
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_SEQUENCE_H_
