// The description of a step that kernels read, in one host-to-device copy.
#ifndef TRIPTYCH_ENGINE_BACKEND_CUDA_STEP_BUFFERS_H_
#define TRIPTYCH_ENGINE_BACKEND_CUDA_STEP_BUFFERS_H_

#include <compare>
#include <cstdint>
#include <vector>

#include "engine/backend/cuda/attention_kernels.h"
#include "engine/backend/cuda/device_memory.h"
#include "engine/backend/cuda/row_kernels.h"
#include "engine/backend/model_backend.h"

namespace triptych::cuda {

// Everything that a step's launches depend on besides the contents of device memory: steps of one
// shape share a graph. Decode rows come first, then prefill rows, of which the expanded come last.
struct StepShape {
  int decode_rows = 0;  // padded
  int prefill_rows = 0;
  int expanded_rows = 0;  // the last of the prefill rows
  int runs = 0;
  int longest_run = 0;  // rows of the longest run
  int longest_context =
      0;               // of decode rows, without regard to windows, rounded up to a power of two
  int logit_rows = 0;  // likely_rows, then logit_rows; padded in steps without prefill
  bool finds_likely = false;  // there are likely_rows

  int rows() const { return decode_rows + prefill_rows; }
  auto operator<=>(const StepShape&) const = default;
};

// Bounds of the prompt rows of MLA that are attended over expanded keys and values.
struct ExpansionLimits {
  int64_t from = kNeverExpand;  // the first such position of a prompt
  int64_t positions = 0;        // expanded in a pass, a multiple of kPassAlignment
  int64_t rows = 0;             // of a run
};

// Not thread-safe.
class StepBuffers {
 public:
  // `groups`: those of the cache's geometry. REQUIRES: one, unless prompts are never expanded.
  explicit StepBuffers(const ExpansionLimits& limits = {}, int groups = 1)
      : limits_(limits), groups_(groups) {}

  // Lays out a step in pinned memory, which is reused, and returns its shape.
  const StepShape& Write(const StepInput& step, int64_t block_positions);
  // Enqueues the copy to the device. True if the device memory has moved, which invalidates graphs.
  bool Send(cudaStream_t stream);

  const StepShape& shape() const { return shape_; }  // of the step written last
  // The passes over the expanded rows of the step written last, in order.
  const std::vector<ExpansionPass>& passes() const { return passes_; }

  // In device memory, of the step written last; equal for all steps of one shape until it moves.
  const int32_t* ids() const { return device_.get(); }
  const int32_t* positions() const { return ids() + shape_.rows(); }
  // The next two, and runs(), are of one group of layers, whose blocks are in blocks() too.
  const int32_t* tables(int group = 0) const {
    return positions() + int64_t{shape_.rows()} * (1 + group);
  }
  const int32_t* slots(int group = 0) const { return tables(groups_ + group); }
  const int32_t* logit_rows() const { return tables(2 * groups_); }
  // [logit_rows]: the scales of LikelyOutput::weight_sums.
  const float* scales() const {
    return reinterpret_cast<const float*>(logit_rows() + shape_.logit_rows);
  }
  // If prompts are never expanded, one run per sequence with prefill rows. Else those of passes().
  const PrefillRun* runs(int group = 0) const {
    return reinterpret_cast<const PrefillRun*>(scales() + shape_.logit_rows) +
           int64_t{group} * shape_.runs;
  }
  // By sequence, then by group.
  const int32_t* blocks() const { return reinterpret_cast<const int32_t*>(runs(groups_)); }
  RowLocations locations(int group = 0) const { return {positions(), slots(group)}; }

 private:
  bool expands() const { return limits_.from != kNeverExpand; }
  void PlanRuns(const StepInput& step, int64_t block_positions);
  void PlanRuns(const StepInput& step, int64_t block_positions, int group);
  // Adds a run of expanded rows, in parts if it exceeds the limits, and their passes.
  void PlanPasses(PrefillRun run);

  ExpansionLimits limits_;
  int groups_;
  StepShape shape_;
  int64_t size_ = 0;  // elements of the step
  PinnedArray<int32_t> pinned_;
  DeviceArray<int32_t> device_;
  bool moved_ = false;  // since the last Send
  std::vector<int32_t> row_of_token_;
  std::vector<PrefillRun> runs_;  // of all groups, one after another
  std::vector<ExpansionPass> passes_;
};

// The padded number of decode rows: a power of two up to 64, then a multiple of 64, so that few
// shapes occur.
int PaddedRows(int64_t rows);

}  // namespace triptych::cuda

#endif  // TRIPTYCH_ENGINE_BACKEND_CUDA_STEP_BUFFERS_H_
