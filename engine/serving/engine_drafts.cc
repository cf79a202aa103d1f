// Speculation of an engine: drafts in the plan of a step, and their results.
#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "engine/serving/engine.h"
#include "engine/serving/ngram_drafter.h"

namespace triptych::serving {

int64_t Engine::PlanDrafts(const std::vector<Chunk>& chunks, PrefillThrottle::Duration others) {
  const int64_t most = scheduler_.free_rows();
  if (!speculation_.on() || scheduler_.prefilling() || most <= 0) return 0;
  drafting_.clear();
  for (const Chunk& chunk : chunks) {
    Propose(*chunk.sequence);
    drafting_.push_back(&chunk.sequence->speculation);
  }
  scheduler_.AddDraftedRows(speculation_.Choose(drafting_, most, others));
  int64_t drafted = 0;
  for (const Chunk& chunk : chunks) {
    chunk.sequence->speculation.draft.tokens.resize(chunk.drafted);
    drafted += chunk.drafted;
  }
  return drafted;
}

void Engine::Propose(Sequence& sequence) const {
  const Request& request = *sequence.request;
  const int64_t most = std::min({int64_t{kMostDrafted}, int64_t{request.most_drafted},
                                 request.max_new_tokens - sequence.generated() - 1,
                                 info().max_positions - sequence.length() - 1});
  if (most <= 0) return;
  SequenceSpeculation& speculation = sequence.speculation;
  if (!speculation.drafter) {
    speculation.drafter = MakeDrafter(sequence);
    speculation_.Begin(speculation);
  }
  std::vector<int32_t>& tokens = speculation.draft.tokens;
  speculation.drafter->Propose(sequence.tokens, most, speculation.draft);
  // Nothing follows an end.
  const auto is_wrong = [&](int32_t token) {
    const auto ends = tokenizer_->end_tokens();
    return token < 0 || token >= info().vocab_size ||
           std::find(sequence.ends.begin(), sequence.ends.end(), token) != sequence.ends.end() ||
           (sequence.matcher && std::find(ends.begin(), ends.end(), token) != ends.end());
  };
  tokens.erase(std::find_if(tokens.begin(), tokens.end(), is_wrong), tokens.end());
}

std::unique_ptr<Drafter> Engine::MakeDrafter(Sequence& sequence) const {
  if (make_drafter_) return make_drafter_(sequence);
  const Request& request = *sequence.request;
  std::shared_ptr<NgramIndices>& predicted = sequence.speculation.predicted;
  for (const Sequence* choice : scheduler_.Find(request.id)) {
    if (!predicted) predicted = choice->speculation.predicted;
  }
  if (!predicted) predicted = std::make_shared<NgramIndices>();
  return std::make_unique<NgramDrafter>(request.prediction, sequence.prompt_length(), predicted);
}

void Engine::Deliver(Sequence& sequence, std::span<LogitRow> rows) {
  SequenceSpeculation& speculation = sequence.speculation;
  const auto drafted = std::ssize(rows) - 1;
  const auto is_accepted = [&](int64_t i) {
    return i < drafted && rows[i].token == rows[i + 1].draft;
  };
  if (drafted > 0) {
    int64_t accepted = 0;
    while (is_accepted(accepted)) ++accepted;
    speculation_.RecordResult(speculation, drafted, accepted);
    speculation.drafted += drafted;
    metrics_.drafted_tokens.Add(drafted);
  }
  for (int64_t i = 0;; ++i) {
    const bool accepted = is_accepted(i);
    if (accepted) {
      ++speculation.accepted;
      metrics_.accepted_tokens.Add(1);
    }
    if (i > 0 && rows[i].token >= 0) metrics_.saved_steps.Add(1);
    if (!Generate(sequence, rows[i])) return;
    if (!accepted) break;
    scheduler_.Advance(
        {.sequence = &sequence, .start = sequence.computed, .count = 1, .samples = true});
  }
  if (drafted == 0) return;
  scheduler_.ReleaseDraftedBlocks(sequence);
  speculation.draft.tokens.clear();
}

}  // namespace triptych::serving
