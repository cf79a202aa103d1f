#include "engine/attention/attention.h"

#include "engine/kernels/threads.h"

namespace triptych {

void Attention::WriteAndAttend(const float* q, int64_t q_stride, const float* rows,
                               int64_t rows_stride, const PagedRowLayout& layout, double scale,
                               const PagedStep& step, const at::Tensor& cache, float* out) {
  const int64_t block_positions = cache.size(2);
  const auto run = [&]<typename Row>(Row* data) {
    WritePagedRows(rows, rows_stride, layout.row_width, block_positions, step.sequences, data);
    PagedAttention<Row>(q, q_stride, data, block_positions, layout, static_cast<float>(scale),
                        step.sequences, out, layout.heads * layout.value_width, ComputePool());
  };
  if (cache.scalar_type() == at::kFloat) {
    run(cache.data_ptr<float>());
  } else {
    run(reinterpret_cast<uint16_t*>(cache.data_ptr<at::BFloat16>()));
  }
}

}  // namespace triptych
