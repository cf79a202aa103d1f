// The results of a step in host memory.
#ifndef TRIPTYCH_ENGINE_BACKEND_CUDA_HOST_RESULTS_H_
#define TRIPTYCH_ENGINE_BACKEND_CUDA_HOST_RESULTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/backend/cuda/device_memory.h"
#include "engine/backend/cuda/workspace.h"
#include "engine/backend/model_backend.h"

namespace triptych::cuda {

// Rows are numbered as in a step: first its likely_rows, then its logit_rows. Memory is
// page-locked, grows with the largest step and is reused.
class HostResults {
 public:
  // Makes room for a step's rows. REQUIRES: no copy is pending.
  void Reserve(int64_t likely_rows, int64_t logit_rows, int64_t vocab);
  // Enqueues the copy of rows first to first + count - 1, which are at the start of the workspace.
  void EnqueueCopy(const Workspace& workspace, int64_t first, int64_t count, cudaStream_t stream);

  // The logits of the step, once its copies are done. Also fills likely().
  std::span<const float> Finish();
  std::span<const LikelyTokens> likely() const { return likely_; }

 private:
  int64_t likely_rows_ = 0;
  int64_t logit_rows_ = 0;
  int64_t vocab_ = 0;
  PinnedArray<float> logits_;           // [logit rows, vocab]
  PinnedArray<int32_t> likely_tokens_;  // [likely rows, LikelyTokenCount]
  PinnedArray<float> likely_logits_;    // [likely rows, LikelyTokenCount]
  PinnedArray<double> log_sum_exps_;    // [likely rows]
  PinnedArray<double> weight_sums_;     // [likely rows]
  std::vector<LikelyTokens> likely_;
};

}  // namespace triptych::cuda

#endif  // TRIPTYCH_ENGINE_BACKEND_CUDA_HOST_RESULTS_H_
