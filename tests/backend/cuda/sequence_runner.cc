#include "tests/backend/cuda/sequence_runner.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>

#include "engine/base/ceil_div.h"
#include "engine/kv_cache/block_table.h"

namespace triptych {

SequenceRunner::SequenceRunner(ModelBackend& model, std::vector<ReferenceSequence> sequences)
    : model_(model), sequences_(std::move(sequences)) {
  const int64_t block_positions = model.info().geometry.block_positions;
  const int64_t groups = model.info().geometry.Groups().count();
  std::vector<int32_t> unused(model.info().blocks);
  std::iota(unused.begin(), unused.end(), 0);
  std::shuffle(unused.begin(), unused.end(), std::mt19937_64(99));
  for (const ReferenceSequence& sequence : sequences_) {
    const int64_t held = CeilDiv(sequence.length(), block_positions) * groups;
    if (held > std::ssize(unused)) throw std::runtime_error("the cache has too few blocks");
    tables_.emplace_back(unused.end() - held, unused.end());
    unused.resize(unused.size() - held);
    logits_.emplace_back(sequence.length() * model.info().vocab_size,
                         std::numeric_limits<float>::quiet_NaN());
  }
}

StepInput SequenceRunner::Input(const std::vector<Piece>& pieces) const {
  StepInput step;
  for (const Piece& piece : pieces) {
    const ReferenceSequence& sequence = sequences_[piece.sequence];
    step.sequences.push_back({.blocks = tables_[piece.sequence].data(),
                              .start = piece.start,
                              .count = piece.count,
                              .prompt = sequence.prompt});
    step.ids.insert(step.ids.end(), sequence.ids.begin() + piece.start,
                    sequence.ids.begin() + piece.start + piece.count);
  }
  return step;
}

void SequenceRunner::Step(const std::vector<Piece>& pieces) {
  StepInput step = Input(pieces);
  step.logit_rows.resize(step.ids.size());
  std::iota(step.logit_rows.begin(), step.logit_rows.end(), 0);
  std::span<const float> logits = model_.Step(step);
  const int64_t vocab = model_.info().vocab_size;
  for (const Piece& piece : pieces) {
    const int64_t count = piece.count * vocab;
    std::copy_n(logits.begin(), count, logits_[piece.sequence].begin() + piece.start * vocab);
    logits = logits.subspan(count);
    GiveBack(piece.sequence, piece.start + piece.count);
  }
}

void SequenceRunner::GiveBack(size_t sequence, int64_t position) {
  const CacheGeometry& geometry = model_.info().geometry;
  const LayerGroups groups = geometry.Groups();
  for (int64_t i = 0; i < groups.Unseen(position, geometry.block_positions); ++i) {
    const auto blocks = tables_[sequence].begin() + i * groups.count();
    std::fill(blocks + groups.full, blocks + groups.count(), BlockTable::kNone);
  }
}

void SequenceRunner::RunAlone(const std::vector<int64_t>& prompt_chunks, int64_t generated) {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const int64_t length = sequences_[i].length(), prompt = sequences_[i].prompt;
    int64_t done = 0;
    for (size_t chunk = 0; done < prompt; ++chunk) {
      const int64_t most = prompt_chunks[chunk % prompt_chunks.size()];
      const int64_t count = std::min(most, prompt - done);
      Step({{i, done, count}});
      done += count;
    }
    for (; done < length; done += generated) {
      Step({{i, done, std::min(generated, length - done)}});
    }
  }
}

void SequenceRunner::RunTogether(uint64_t seed) {
  constexpr uint64_t kLongestChunk = 150;
  std::mt19937_64 generator(seed);
  std::vector<int64_t> done(sequences_.size());
  for (size_t joined = 1;; ++joined) {
    std::vector<Piece> pieces;
    for (size_t i = sequences_.size(); i-- > 0;) {
      const int64_t left = sequences_[i].length() - done[i];
      if (sequences_.size() - i > joined || left == 0) continue;
      const bool in_prompt = done[i] < sequences_[i].prompt;
      const int64_t most = in_prompt ? 1 + static_cast<int64_t>(generator() % kLongestChunk) : 1;
      pieces.push_back({i, done[i], std::min(left, most)});
      done[i] += pieces.back().count;
    }
    if (!pieces.empty()) {
      Step(pieces);
    } else if (joined >= sequences_.size()) {
      return;
    }
  }
}

void SequenceRunner::RunInCrowd(int64_t last_tokens) {
  std::vector<int64_t> done;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    done.push_back(std::max<int64_t>(sequences_[i].length() - last_tokens, 0));
    if (done[i] > 0) Step({{i, 0, done[i]}});
  }
  for (int64_t token = 0; token < last_tokens; ++token) {
    std::vector<Piece> pieces;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      if (done[i] + token < sequences_[i].length()) pieces.push_back({i, done[i] + token, 1});
    }
    if (!pieces.empty()) Step(pieces);
  }
}

int64_t BlocksFor(const std::vector<ReferenceSequence>& sequences, int64_t block_positions,
                  int64_t groups) {
  int64_t blocks = 0;
  for (const ReferenceSequence& sequence : sequences) {
    blocks += CeilDiv(sequence.length(), block_positions) * groups;
  }
  return blocks;
}

}  // namespace triptych
