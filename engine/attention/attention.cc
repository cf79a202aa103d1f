#include "engine/attention/attention.h"

#include <ATen/TensorIndexing.h>

#include "engine/attention/dense.h"
#include "engine/kernels/threads.h"

namespace triptych {
namespace {

// A view of a cache as [blocks, block_positions, row_width].
at::Tensor AsRows(const at::Tensor& cache) { return cache.transpose(1, 2); }

//   rows: [tokens, row_width]
void WriteRows(const at::Tensor& rows, const TensorStep& step, const at::Tensor& cache) {
  AsRows(cache).index_put_({step.blocks, step.offsets}, rows.to(cache.scalar_type()));
}

// Those of one sequence: [length, row_width].
at::Tensor ReadRows(const TensorStep::Sequence& sequence, const at::Tensor& cache) {
  return AsRows(cache).index_select(0, sequence.blocks).flatten(0, 1).narrow(0, 0, sequence.length);
}

}  // namespace

TensorStep::TensorStep(const PagedStep& step, int64_t block_positions, at::Device device) {
  const auto to_device = [&](const auto& values) {
    return at::tensor(at::ArrayRef(values), at::kLong).to(device);
  };
  std::vector<int64_t> row_blocks, row_offsets;
  for (const PagedSequence& sequence : step.sequences) {
    const int64_t length = sequence.start + sequence.count;
    for (int64_t p = sequence.start; p < length; ++p) {
      row_blocks.push_back(sequence.blocks[p / block_positions]);
      row_offsets.push_back(p % block_positions);
    }
    const int64_t held = (length + block_positions - 1) / block_positions;
    const std::vector<int64_t> all(sequence.blocks, sequence.blocks + held);
    sequences.push_back({to_device(all), length, sequence.count});
  }
  positions = to_device(step.positions);
  blocks = to_device(row_blocks);
  offsets = to_device(row_offsets);
}

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

at::Tensor Attention::WriteAndAttend(const at::Tensor& q, const at::Tensor& rows,
                                     const PagedRowLayout& layout, double scale,
                                     const TensorStep& step, const at::Tensor& cache) {
  WriteRows(rows, step, cache);
  std::vector<at::Tensor> out;
  int64_t token = 0;
  for (const TensorStep::Sequence& sequence : step.sequences) {
    const at::Tensor context = ReadRows(sequence, cache).to(q.scalar_type()).unsqueeze(0);
    const auto heads = [&](int64_t offset, int64_t width) {  // [1, length, G, width]
      return context.narrow(2, offset, layout.groups * width).unflatten(2, {layout.groups, width});
    };
    out.push_back(AttendDense(q.narrow(0, token, sequence.count).unsqueeze(0),
                              heads(0, layout.key_width),
                              heads(layout.value_offset, layout.value_width), scale,
                              /*causal=*/true)
                      .squeeze(0));
    token += sequence.count;
  }
  return at::cat(out);
}

}  // namespace triptych
