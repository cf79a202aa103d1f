#include "engine/attention/attention.h"

#include "engine/kernels/threads.h"

namespace triptych {

at::Tensor Attention::WriteAndAttend(const at::Tensor& q, const at::Tensor& rows,
                                     const PagedRowLayout& layout, double scale,
                                     const PagedStep& step, at::Tensor& cache) {
  const at::Tensor queries = q.contiguous();
  const at::Tensor new_rows = rows.contiguous();
  const at::Tensor out = at::empty({q.size(0), layout.heads * layout.value_width}, at::kFloat);
  const auto attend = [&]<typename Row>(Row* data) {
    const int64_t block_positions = cache.size(2);
    WritePagedRows(new_rows.data_ptr<float>(), layout.row_width, layout.row_width, block_positions,
                   step.sequences, data);
    PagedAttention(queries.data_ptr<float>(), layout.heads * layout.key_width, data,
                   block_positions, layout, static_cast<float>(scale), step.sequences,
                   out.data_ptr<float>(), layout.heads * layout.value_width, ComputePool());
  };
  if (cache.scalar_type() == at::kFloat) {
    attend(cache.data_ptr<float>());
  } else {
    attend(reinterpret_cast<uint16_t*>(cache.data_ptr<at::BFloat16>()));
  }
  return out;
}

}  // namespace triptych
