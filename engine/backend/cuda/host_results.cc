#include "engine/backend/cuda/host_results.h"

#include <algorithm>

#include "engine/backend/cuda/likely_tokens.h"

namespace triptych::cuda {
namespace {

template <typename T>
void Grow(int64_t size, PinnedArray<T>& array) {
  if (array.size() >= size) return;
  array = {};  // frees the old one first
  array = PinnedArray<T>(size);
}

// Copies `rows` rows of `width` elements, from row `from_row` on.
template <typename T>
void EnqueueRows(const DeviceArray<T>& from, int64_t from_row, int64_t rows, int64_t width, T* to,
                 cudaStream_t stream) {
  Check(cudaMemcpyAsync(to, from.get() + from_row * width,
                        static_cast<size_t>(rows * width) * sizeof(T), cudaMemcpyDeviceToHost,
                        stream));
}

}  // namespace

void HostResults::Reserve(int64_t likely_rows, int64_t logit_rows, int64_t vocab) {
  likely_rows_ = likely_rows;
  logit_rows_ = logit_rows;
  vocab_ = vocab;
  const int64_t count = LikelyTokenCount(vocab);
  Grow(logit_rows * vocab, logits_);
  Grow(likely_rows * count, likely_tokens_);
  Grow(likely_rows * count, likely_logits_);
  Grow(likely_rows, log_sum_exps_);
  Grow(likely_rows, weight_sums_);
  likely_.clear();
}

void HostResults::EnqueueCopy(const Workspace& workspace, int64_t first, int64_t count,
                              cudaStream_t stream) {
  const int64_t width = LikelyTokenCount(vocab_);
  const int64_t likely = std::clamp<int64_t>(likely_rows_ - first, 0, count);
  if (likely > 0) {
    EnqueueRows(workspace.likely_tokens, 0, likely, width, likely_tokens_.get() + first * width,
                stream);
    EnqueueRows(workspace.likely_logits, 0, likely, width, likely_logits_.get() + first * width,
                stream);
    EnqueueRows(workspace.log_sum_exps, 0, likely, 1, log_sum_exps_.get() + first, stream);
    EnqueueRows(workspace.weight_sums, 0, likely, 1, weight_sums_.get() + first, stream);
  }
  if (likely == count) return;
  EnqueueRows(workspace.logits, likely, count - likely, vocab_,
              logits_.get() + (first + likely - likely_rows_) * vocab_, stream);
}

std::span<const float> HostResults::Finish() {
  const auto width = static_cast<size_t>(LikelyTokenCount(vocab_));
  for (int64_t i = 0; i < likely_rows_; ++i) {
    const auto at = static_cast<size_t>(i) * width;
    likely_.push_back({.tokens = {likely_tokens_.get() + at, width},
                       .logits = {likely_logits_.get() + at, width},
                       .log_sum_exp = log_sum_exps_.get()[i],
                       .weight_sum = weight_sums_.get()[i]});
  }
  return {logits_.get(), static_cast<size_t>(logit_rows_ * vocab_)};
}

}  // namespace triptych::cuda
