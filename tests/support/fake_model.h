// Fake model without weights. Its next token is a function of the sequence so far, which it reads
// from its cache: a wrong block, a stale row or a mixed-up sequence changes its output. A row also
// names its group of layers, and a step checks the rows of all groups. Its scratch memory of a
// prompt contains the rows of the prompt.
#ifndef TRIPTYCH_TESTS_SUPPORT_FAKE_MODEL_H_
#define TRIPTYCH_TESTS_SUPPORT_FAKE_MODEL_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "engine/backend/model_backend.h"
#include "tests/support/likely_tokens.h"

namespace triptych {

class FakeModel final : public ModelBackend {
 public:
  struct Shape {
    int64_t vocab_size = 258;
    int64_t max_positions = 64;
    int64_t blocks = 200;
    int64_t block_positions = 5;
    std::optional<int64_t> expand_from = {};
    // Layers with a window, if there are any: `full_layers` are without.
    int64_t full_layers = 2;
    int64_t windowed_layers = 0;
    int64_t window = 0;
    int64_t likely_tokens = 0;       // BackendInfo::likely_tokens
    int64_t least_prefill_rows = 1;  // BackendInfo::least_prefill_rows
  };

  explicit FakeModel(const Shape& shape) {
    info_ = {.vocab_size = shape.vocab_size,
             .max_positions = shape.max_positions,
             .geometry = GeometryOf(shape),
             .blocks = shape.blocks,
             .cache_bytes = 0,
             .expand_from = shape.expand_from,
             .likely_tokens = shape.likely_tokens,
             .least_prefill_rows = shape.least_prefill_rows,
             .verifies_drafts = shape.likely_tokens == 0};
    info_.cache_bytes = info_.blocks * info_.geometry.BlockBytes();
    cache_.assign(info_.blocks * shape.block_positions, -1);
    groups_ = info_.geometry.Groups();
  }

  static CacheGeometry GeometryOf(const Shape& shape) {
    if (shape.windowed_layers == 0) {
      return {.block_positions = shape.block_positions,
              .row_bytes = {24, 8},
              .mha_bytes_per_position = 128};
    }
    CacheGeometry geometry{.block_positions = shape.block_positions,
                           .row_bytes = {},
                           .mha_bytes_per_position = 128,
                           .window = shape.window};
    for (int64_t layer = 0; layer < shape.full_layers + shape.windowed_layers; ++layer) {
      geometry.row_bytes.push_back(8);
      geometry.windowed.push_back(layer >= shape.full_layers);
    }
    return geometry;
  }

  // The token that a greedy request must get after `tokens`, whose first `prompt` tokens are its
  // prompt.
  static int32_t Next(std::span<const int32_t> tokens, const Shape& shape, int64_t prompt) {
    uint64_t hash = tokens.size();
    const int64_t seen = SeenBy(GeometryOf(shape).Groups());
    for (int64_t p = std::max<int64_t>(std::ssize(tokens) - seen, 0); p < std::ssize(tokens); ++p) {
      hash = Mix(hash, Row(tokens[p], shape.expand_from, p, prompt));
    }
    return static_cast<int32_t>(hash % shape.vocab_size);
  }

  std::span<const float> Step(const StepInput& step) override {
    CheckStep(step, info_);
    ++steps;
    if (before_step) before_step(step);
    logits_.clear();
    likely_rows_.clear();
    whole_.clear();
    size_t token = 0;
    const auto wants = [&](const std::vector<int64_t>& rows, int64_t computed) {
      return computed < std::ssize(rows) && rows[computed] == static_cast<int64_t>(token);
    };
    for (const StepInput::Sequence& sequence : step.sequences) {
      if (sequence.scratch != nullptr) CheckScratch(sequence);
      for (int64_t p = sequence.start; p < sequence.start + sequence.count; ++p, ++token) {
        for (int64_t group = 0; group < groups_.count(); ++group) {
          At(sequence, p, group) =
              Row(step.ids[token], info_.expand_from, p, sequence.prompt) + group * kGroup;
        }
        const bool likely = wants(step.likely_rows, std::ssize(likely_rows_));
        const int64_t rows = std::ssize(logits_) / info_.vocab_size;
        if (!likely && !wants(step.logit_rows, rows)) continue;
        uint64_t hash = p + 1;
        for (int64_t q = std::max<int64_t>(p + 1 - SeenBy(groups_), 0); q <= p; ++q) {
          const int64_t id = At(sequence, q);
          if (id < 0) throw std::logic_error("read of a row that was never written");
          hash = Mix(hash, id);
        }
        CheckGroups(sequence, p);
        std::vector<float> logits(info_.vocab_size);
        logits[hash % info_.vocab_size] = kLikely;
        if (likely) {
          const float scale = step.likely_scales.at(likely_rows_.size());
          likely_rows_.emplace_back(logits, info_.likely_tokens, scale);
          whole_.push_back(std::move(logits));
        } else {
          logits_.insert(logits_.end(), logits.begin(), logits.end());
        }
      }
    }
    if (token != step.ids.size() || likely_rows_.size() != step.likely_rows.size() ||
        logits_.size() != step.logit_rows.size() * info_.vocab_size) {
      throw std::logic_error("the step's tokens and rows do not match");
    }
    likely_.clear();
    for (const LikelyRow& row : likely_rows_) likely_.push_back(row.View());
    return logits_;
  }
  std::span<const LikelyTokens> likely() const override { return likely_; }
  std::span<const float> FetchLogits(std::span<const int64_t> likely_rows) override {
    fetched_.clear();
    for (const int64_t row : likely_rows) {
      fetched_.insert(fetched_.end(), whole_.at(row).begin(), whole_.at(row).end());
      ++fetches;
    }
    return fetched_;
  }

  std::unique_ptr<PromptScratch> MakePromptScratch(int64_t prompt) override {
    if (prompt <= info_.expand_from.value_or(prompt)) return nullptr;
    return std::make_unique<Scratch>(scratches);
  }

  const BackendInfo& info() const override { return info_; }

  // The content of a row. Differs if its position used expanded attention, as in a long prompt.
  static int64_t Row(int64_t token, std::optional<int64_t> expand_from, int64_t position,
                     int64_t prompt) {
    const bool expanded = expand_from && position >= *expand_from && position < prompt;
    return 2 * token + (expanded ? 1 : 0);
  }
  static constexpr int64_t kGroup = int64_t{1} << 40;  // added to a row for each earlier group
  static constexpr float kLikely = 20;  // the logit of the next token; the others have 0
  // The cache's row; -1 if it was not written yet.
  int64_t row(int32_t block, int64_t column) const {
    return cache_.at(block * info_.geometry.block_positions + column);
  }

  int64_t steps = 0;
  int64_t scratches = 0;  // live scratch memories
  int64_t fetches = 0;    // fetched whole rows of logits
  // Called in every step; the step throws its exceptions.
  std::function<void(const StepInput&)> before_step;

 private:
  static constexpr int64_t kSeen = 64;  // a token depends on at most this number of last positions

  static int64_t SeenBy(const LayerGroups& groups) {
    return groups.full > 0 ? kSeen : std::min(kSeen, groups.window);
  }

  // Every group's rows that a query at `position` attends equal those of the first group.
  void CheckGroups(const StepInput::Sequence& sequence, int64_t position) {
    for (int64_t group = 1; group < groups_.count(); ++group) {
      const int64_t seen = groups_.full == 0 || group >= groups_.full ? groups_.window : kSeen;
      for (int64_t p = std::max<int64_t>(position + 1 - seen, 0); p <= position; ++p) {
        if (At(sequence, p, group) != At(sequence, p) + group * kGroup) {
          throw std::logic_error("a group of layers has another sequence's row");
        }
      }
    }
  }

  struct Scratch final : PromptScratch {
    explicit Scratch(int64_t& live_in) : live(live_in) { ++live; }
    ~Scratch() override { --live; }
    int64_t& live;
    std::vector<int64_t> rows;  // rows before the last step that used it
  };

  void CheckScratch(const StepInput::Sequence& sequence) {
    if (sequence.start >= sequence.prompt) throw std::logic_error("scratch of a computed prompt");
    if (groups_.full == 0) return;
    std::vector<int64_t> rows(sequence.start);
    for (int64_t p = 0; p < sequence.start; ++p) rows[p] = At(sequence, p);
    std::vector<int64_t>& kept = static_cast<Scratch*>(sequence.scratch)->rows;
    if (kept.size() > rows.size() || !std::equal(kept.begin(), kept.end(), rows.begin())) {
      throw std::logic_error("scratch of another prompt");
    }
    kept = std::move(rows);
  }

  static uint64_t Mix(uint64_t hash, int64_t token) {
    hash = (hash ^ static_cast<uint64_t>(token + 1)) * 0x9e3779b97f4a7c15;
    return hash ^ (hash >> 29);
  }

  int64_t& At(const StepInput::Sequence& sequence, int64_t position, int64_t group = 0) {
    const int64_t size = info_.geometry.block_positions;
    const int32_t block = sequence.blocks[position / size * groups_.count() + group];
    if (block < 0) throw std::logic_error("read of a block that was given back");
    return cache_.at(block * size + position % size);
  }

  BackendInfo info_;
  LayerGroups groups_;
  std::vector<int64_t> cache_;  // the Row of each position
  std::vector<float> logits_;
  std::vector<LikelyRow> likely_rows_;
  std::vector<LikelyTokens> likely_;
  std::vector<std::vector<float>> whole_;  // logits of the likely rows
  std::vector<float> fetched_;
};

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_FAKE_MODEL_H_
