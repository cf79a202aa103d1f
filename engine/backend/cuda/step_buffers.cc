#include "engine/backend/cuda/step_buffers.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "engine/base/ceil_div.h"

namespace triptych::cuda {
namespace {

// Rows of y and x in Matmuls::Run start at multiples of this.
constexpr int64_t kRowAlignment = 16;

// The number of a sequence's new tokens that belong to its prompt; they come first.
int64_t PromptTokens(const StepInput::Sequence& sequence) {
  return std::clamp<int64_t>(sequence.prompt - sequence.start, 0, sequence.count);
}

// The number of them before position `expand_from`.
int64_t ReducedTokens(const StepInput::Sequence& sequence, int64_t expand_from) {
  return std::clamp<int64_t>(expand_from - sequence.start, 0, PromptTokens(sequence));
}

int64_t RoundUp(int64_t n, int64_t multiple) { return CeilDiv(n, multiple) * multiple; }
int64_t PowerOfTwo(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
}

}  // namespace

int PaddedRows(int64_t rows) {
  constexpr int64_t kMany = 64;
  if (rows == 0) return 0;
  return static_cast<int>(rows >= kMany ? RoundUp(rows, kMany) : PowerOfTwo(rows));
}

const StepShape& StepBuffers::Write(const StepInput& step, int64_t block_positions) {
  int64_t decode_rows = 0, longest_context = 0, blocks = 0;
  shape_ = {};
  for (const StepInput::Sequence& sequence : step.sequences) {
    const int64_t prompt_tokens = PromptTokens(sequence);
    shape_.prefill_rows += static_cast<int>(prompt_tokens);
    shape_.expanded_rows += static_cast<int>(prompt_tokens - ReducedTokens(sequence, limits_.from));
    decode_rows += sequence.count - prompt_tokens;
    const int64_t end = sequence.start + sequence.count;
    if (prompt_tokens < sequence.count) longest_context = std::max(longest_context, end);
    blocks += groups_ * CeilDiv(end, block_positions);
  }
  const bool mixed = shape_.prefill_rows > 0;
  shape_.decode_rows =
      mixed ? static_cast<int>(RoundUp(decode_rows, kRowAlignment)) : PaddedRows(decode_rows);
  shape_.longest_context = static_cast<int>(longest_context > 0 ? PowerOfTwo(longest_context) : 0);
  const auto likely_rows = static_cast<int64_t>(step.likely_rows.size());
  const auto logit_rows = likely_rows + static_cast<int64_t>(step.logit_rows.size());
  shape_.finds_likely = likely_rows > 0;
  shape_.logit_rows = mixed ? static_cast<int>(logit_rows) : PaddedRows(logit_rows);

  PlanRuns(step, block_positions);
  constexpr auto kRunElements = static_cast<int64_t>(sizeof(PrefillRun) / sizeof(int32_t));
  const int64_t rows = shape_.rows();
  const int64_t fixed = (2 + 2 * groups_) * rows + int64_t{2} * shape_.logit_rows +
                        kRunElements * groups_ * shape_.runs;
  size_ = fixed + blocks;
  if (pinned_.size() < size_) pinned_ = PinnedArray<int32_t>(PowerOfTwo(size_ + 4096));
  int32_t* const ids = pinned_.get();
  int32_t* const positions = ids + rows;
  int32_t* const tables = positions + rows;
  int32_t* const slots = tables + groups_ * rows;
  int32_t* const wanted = slots + groups_ * rows;
  auto* const scales = reinterpret_cast<float*>(wanted + shape_.logit_rows);
  std::copy(runs_.begin(), runs_.end(), reinterpret_cast<PrefillRun*>(scales + shape_.logit_rows));
  int32_t* const all_blocks = ids + fixed;
  std::fill(ids, ids + rows, 0);
  std::fill(positions, positions + rows, -1);
  std::fill(tables, slots, 0);
  std::fill(slots, wanted, -1);
  std::fill(wanted, wanted + shape_.logit_rows, 0);
  std::fill(scales, scales + shape_.logit_rows, 1.0f);
  std::copy(step.likely_scales.begin(), step.likely_scales.end(), scales);
  row_of_token_.clear();
  int32_t table = 0, next_decode = 0, next_prefill = shape_.decode_rows;
  int32_t next_expanded = shape_.rows() - shape_.expanded_rows;
  for (const StepInput::Sequence& sequence : step.sequences) {
    const int64_t prompt_tokens = PromptTokens(sequence);
    const int64_t reduced = ReducedTokens(sequence, limits_.from);
    const auto held =
        static_cast<int32_t>(CeilDiv(sequence.start + sequence.count, block_positions));
    for (int64_t i = 0; i < sequence.count; ++i) {
      const int32_t row = i < reduced         ? next_prefill++
                          : i < prompt_tokens ? next_expanded++
                                              : next_decode++;
      const int64_t position = sequence.start + i;
      ids[row] = static_cast<int32_t>(step.ids[row_of_token_.size()]);
      positions[row] = static_cast<int32_t>(position);
      for (int group = 0; group < groups_; ++group) {
        const int64_t block = sequence.blocks[position / block_positions * groups_ + group];
        tables[group * rows + row] = table + group * held;
        slots[group * rows + row] =
            static_cast<int32_t>(block * block_positions + position % block_positions);
      }
      row_of_token_.push_back(row);
    }
    for (int group = 0; group < groups_; ++group) {
      for (int32_t i = 0; i < held; ++i) {
        all_blocks[table++] = sequence.blocks[int64_t{i} * groups_ + group];
      }
    }
  }
  for (int64_t i = 0; i < logit_rows; ++i) {
    const int64_t token = i < likely_rows ? step.likely_rows[i] : step.logit_rows[i - likely_rows];
    wanted[i] = row_of_token_[token];
  }
  return shape_;
}

void StepBuffers::PlanRuns(const StepInput& step, int64_t block_positions) {
  runs_.clear();
  passes_.clear();
  for (int group = 0; group < groups_; ++group) PlanRuns(step, block_positions, group);
  shape_.runs = static_cast<int>(runs_.size()) / groups_;
}

void StepBuffers::PlanRuns(const StepInput& step, int64_t block_positions, int group) {
  int32_t table = 0, row = expands() ? shape_.rows() - shape_.expanded_rows : shape_.decode_rows;
  for (const StepInput::Sequence& sequence : step.sequences) {
    const int64_t skipped = expands() ? ReducedTokens(sequence, limits_.from) : 0;
    const auto held =
        static_cast<int32_t>(CeilDiv(sequence.start + sequence.count, block_positions));
    const PrefillRun run{.start = static_cast<int32_t>(sequence.start + skipped),
                         .count = static_cast<int32_t>(PromptTokens(sequence) - skipped),
                         .row = row,
                         .table = table + group * held};
    table += groups_ * held;
    row += run.count;
    if (run.count == 0) continue;
    shape_.longest_run = std::max(shape_.longest_run, run.count);
    if (expands()) {
      PlanPasses(run);
    } else {
      runs_.push_back(run);
    }
  }
}

void StepBuffers::PlanPasses(PrefillRun run) {
  const auto most = static_cast<int>(limits_.positions), most_rows = static_cast<int>(limits_.rows);
  for (int left = run.count; left > 0; left -= run.count) {
    run.count = std::min(left, most_rows);
    const int end = run.start + run.count, index = static_cast<int>(runs_.size());
    const bool joins =
        !passes_.empty() && passes_.back().first == 0 && end <= most - passes_.back().positions;
    run.expanded = joins ? passes_.back().positions : 0;
    runs_.push_back(run);
    if (joins) {
      ExpansionPass& pass = passes_.back();
      ++pass.runs;
      pass.positions += end;
      pass.longest_run = std::max(pass.longest_run, run.count);
      pass.longest_context = std::max(pass.longest_context, end);
    } else {
      for (int first = 0; first < end; first += most) {
        const int count = std::min(most, end - first);
        passes_.push_back({.first_run = index,
                           .runs = 1,
                           .first = first,
                           .limit = first + most,
                           .positions = count,
                           .longest_run = run.count,
                           .longest_context = count});
      }
    }
    run.start += run.count;
    run.row += run.count;
  }
}

bool StepBuffers::Send(cudaStream_t stream) {
  if (device_.size() < pinned_.size()) {
    Check(cudaStreamSynchronize(stream));
    moved_ = true;
    device_ = DeviceArray<int32_t>(pinned_.size());
  }
  Check(cudaMemcpyAsync(device_.get(), pinned_.get(), size_ * static_cast<int64_t>(sizeof(int32_t)),
                        cudaMemcpyHostToDevice, stream));
  return std::exchange(moved_, false);
}

}  // namespace triptych::cuda
