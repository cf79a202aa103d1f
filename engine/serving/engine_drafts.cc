// Speculation of an engine: drafts in the plan of a step, and their results.
#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "engine/serving/engine.h"
#include "engine/serving/ngram_drafter.h"

namespace triptych::serving {
namespace {

// The draft model catches up with this many earlier tokens at most for each token to come.
constexpr int64_t kMostCaughtUpPerToken = 16;

}  // namespace

int64_t Engine::PlanDrafts(const std::vector<Chunk>& chunks, PrefillThrottle::Duration others) {
  const int64_t most = scheduler_.free_rows();
  if (!speculation_.on() || scheduler_.prefilling() || most <= 0) return 0;
  drafting_.clear();
  for (const Chunk& chunk : chunks) {
    Propose(*chunk.sequence);
    drafting_.push_back(&chunk.sequence->speculation);
  }
  const std::span<int64_t> counts = speculation_.Choose(drafting_, most, others);
  if (draft_model_) CatchUp(chunks, counts, others);
  scheduler_.AddDraftedRows(counts);
  int64_t drafted = 0;
  for (const Chunk& chunk : chunks) {
    chunk.sequence->speculation.draft.tokens.resize(chunk.drafted);
    drafted += chunk.drafted;
  }
  if (draft_model_) DraftByModel(chunks);
  return drafted;
}

int64_t Engine::MostByDraftModel(Sequence& sequence, int64_t most) const {
  const int64_t size = info().geometry.block_positions, last = sequence.length() - 1;
  const std::vector<int32_t>& blocks = sequence.blocks.blocks();
  int64_t filled = 0;
  while (filled < last / size && pool_.drafted(blocks[filled])) ++filled;
  // A block of another sequence may have replaced the next one since.
  const bool kept = sequence.draft_rows > filled * size &&
                    sequence.draft_rows < (filled + 1) * size &&
                    sequence.draft_block == blocks[filled];
  if (!kept) sequence.draft_rows = filled * size;
  const int64_t left = sequence.request->max_new_tokens - sequence.generated();
  if (last - sequence.draft_rows > kMostCaughtUpPerToken * left) return 0;
  return std::clamp<int64_t>(draft_model_->info().max_positions - sequence.length(), 0, most);
}

void Engine::CatchUp(const std::vector<Chunk>& chunks, std::span<int64_t> counts,
                     PrefillThrottle::Duration others) {
  // Blocks up to this size are filled as a whole: a sequence that stopped within a shared block
  // would lose rows there to another one that fills it.
  constexpr int64_t kMostWhole = 128;
  const int64_t size = info().geometry.block_positions;
  caught_up_.assign(chunks.size(), 0);
  int64_t rows = speculation_.MostCaughtUp(std::ssize(chunks), others);
  bool first = true;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const Sequence& sequence = *chunks[i].sequence;
    if (counts[i] == 0 || sequence.speculation.draft.strength != Draft::kByDraftModel) continue;
    const int64_t behind = sequence.length() - 1 - sequence.draft_rows;
    int64_t most = rows;
    if (most < behind && size <= kMostWhole) {
      const int64_t begun = sequence.draft_rows % size;
      const int64_t whole = (begun + most) / size * size - begun;
      most = whole > 0 ? whole : first ? size - begun : 0;  // the first one moves on in any case
    }
    caught_up_[i] = std::min(most, behind);
    rows = std::max<int64_t>(rows - caught_up_[i], 0);
    first = false;
    if (caught_up_[i] < behind) counts[i] = 0;
  }
}

void Engine::DraftByModel(const std::vector<Chunk>& chunks) {
  const auto drafts = [](const Chunk& chunk, int64_t tokens) {
    return chunk.drafted > tokens &&
           chunk.sequence->speculation.draft.strength == Draft::kByDraftModel;
  };
  for (int64_t drafted = 0;; ++drafted) {
    draft_model_->Begin();
    for (size_t i = 0; i < chunks.size(); ++i) {
      const Sequence& sequence = *chunks[i].sequence;
      const std::span<const int32_t> tokens = sequence.tokens;
      const bool more = drafts(chunks[i], drafted);
      if (drafted == 0) {
        const int64_t count = caught_up_[i] + (more ? 1 : 0);
        if (count == 0) continue;
        draft_model_->Add(sequence.blocks.blocks().data(), sequence.draft_rows,
                          tokens.subspan(sequence.draft_rows, count), more);
      } else if (more) {
        const std::span<const int32_t> draft = sequence.speculation.draft.tokens;
        draft_model_->Add(sequence.blocks.blocks().data(), sequence.length() + drafted - 1,
                          draft.subspan(drafted - 1, 1), true);
      }
    }
    if (draft_model_->rows() == 0) return;
    std::span<const int32_t> found = StepDraftModel();
    for (size_t i = 0; i < chunks.size(); ++i) {
      Sequence& sequence = *chunks[i].sequence;
      const bool more = drafts(chunks[i], drafted);
      const int64_t before = sequence.draft_rows;
      if (drafted == 0) sequence.draft_rows += caught_up_[i];
      if (more) {
        sequence.speculation.draft.tokens[drafted] = found.front();
        found = found.subspan(1);
        ++sequence.draft_rows;
      }
      if (sequence.draft_rows > before) MarkDrafted(sequence, before);
    }
  }
}

std::span<const int32_t> Engine::StepDraftModel() {
  const auto start = clock_();
  const std::span<const int32_t> tokens = draft_model_->Step();
  const auto took = clock_() - start;
  speculation_.RecordDrafting(draft_model_->rows(), took);
  drafting_time_ += took;
  return tokens;
}

void Engine::MarkDrafted(Sequence& sequence, int64_t from) {
  const int64_t size = info().geometry.block_positions;
  const int64_t rows = std::min(sequence.draft_rows, sequence.length());
  const std::vector<int32_t>& blocks = sequence.blocks.blocks();
  for (int64_t i = from / size; i < rows / size; ++i) pool_.MarkDrafted(blocks[i]);
  sequence.draft_block = blocks[(rows - 1) / size];
}

void Engine::Propose(Sequence& sequence) const {
  const Request& request = *sequence.request;
  const int64_t most = std::min({int64_t{kMostDrafted}, int64_t{request.most_drafted},
                                 request.max_new_tokens - sequence.generated() - 1,
                                 info().max_positions - sequence.length() - 1});
  SequenceSpeculation& speculation = sequence.speculation;
  speculation.most_by_draft_model = 0;
  if (most <= 0) return;
  if (!speculation.drafter) {
    speculation.drafter = MakeDrafter(sequence);
    speculation_.Begin(speculation);
  }
  std::vector<int32_t>& tokens = speculation.draft.tokens;
  speculation.drafter->Propose(sequence.tokens, most, speculation.draft);
  // Nothing follows an end.
  const auto is_wrong = [&](int32_t token) {
    return token < 0 || token >= info().vocab_size || EndsText(sequence, token);
  };
  tokens.erase(std::find_if(tokens.begin(), tokens.end(), is_wrong), tokens.end());
  if (draft_model_) speculation.most_by_draft_model = MostByDraftModel(sequence, most);
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
    // Before the block is registered, and perhaps replaced.
    if (speculation.draft.strength == Draft::kByDraftModel) {
      MarkDrafted(sequence, sequence.length() - 1);
    }
    scheduler_.Advance(
        {.sequence = &sequence, .start = sequence.computed, .count = 1, .samples = true});
  }
  if (drafted == 0) return;
  scheduler_.ReleaseDraftedBlocks(sequence);
  speculation.draft.tokens.clear();
  sequence.draft_rows = std::min(sequence.draft_rows, sequence.computed);
}

}  // namespace triptych::serving
