// The serving path, in and out of tensors.
#ifndef TRIPTYCH_TESTS_SUPPORT_PAGED_H_
#define TRIPTYCH_TESTS_SUPPORT_PAGED_H_

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/attention/attention.h"
#include "engine/decoder/decoder.h"
#include "engine/kernels/workspace.h"
#include "engine/kv_cache/storage.h"

namespace triptych {

// x: [tokens, D] float32, contiguous -> [tokens, D] float32
inline at::Tensor RunPaged(const Attention& attention, const at::Tensor& x, const PagedStep& step,
                           const at::Tensor& cache) {
  Workspace workspace;
  at::Tensor y = at::empty(x.sizes(), at::kFloat);
  attention.Paged(x.data_ptr<float>(), step, cache, workspace, y.data_ptr<float>());
  return y;
}

// Returns the logits [rows, vocab]: float32, or over a cache in float64 those.
inline at::Tensor RunStep(const Decoder& decoder, const std::vector<int64_t>& ids,
                          const PagedStep& step, const std::vector<int64_t>& logit_rows,
                          KvCacheStorage& cache) {
  if (cache.layer(0).scalar_type() == at::kDouble) {
    return decoder.StepOnTensors(ids, step, logit_rows, cache);
  }
  Workspace workspace;
  const Workspace::Scope scope(workspace);
  const std::span<const float> logits = decoder.Step(ids, step, logit_rows, cache, workspace);
  at::Tensor copy = at::empty({std::ssize(logit_rows), decoder.config().vocab_size}, at::kFloat);
  std::copy(logits.begin(), logits.end(), copy.data_ptr<float>());
  return copy;
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_PAGED_H_
