#include "engine/attention/attention.h"

#include "engine/kernels/threads.h"

namespace triptych {

at::Tensor Attention::WriteAndAttend(const at::Tensor& q, const at::Tensor& rows,
                                     const PagedRowLayout& layout, double scale,
                                     const PagedStep& step, at::Tensor& cache) {
  cache.view({-1, layout.row_width}).index_copy_(0, step.rows, rows.to(cache.scalar_type()));
  const at::Tensor queries = q.contiguous();
  const at::Tensor out = at::empty({q.size(0), layout.heads * layout.value_width}, at::kFloat);
  const auto attend = [&]<typename Row>(const Row* data) {
    PagedAttention(queries.data_ptr<float>(), data, cache.size(1), layout,
                   static_cast<float>(scale), step.sequences, out.data_ptr<float>(), ComputePool());
  };
  if (cache.scalar_type() == at::kFloat) {
    attend(cache.data_ptr<float>());
  } else {
    attend(reinterpret_cast<const uint16_t*>(cache.data_ptr<at::BFloat16>()));
  }
  return out;
}

}  // namespace triptych
