#include "engine/attention/attention.h"

#include <ATen/TensorIndexing.h>

#include "engine/attention/dense.h"
#include "engine/attention/linear.h"
#include "engine/base/ceil_div.h"
#include "engine/kernels/threads.h"

namespace triptych {
namespace {

PagedCache CacheOf(const at::Tensor& cache) {
  return {
      .elements = cache.data_ptr(),
      .format = cache.scalar_type() == at::kFloat ? CacheFormat::kFloat32 : CacheFormat::kBFloat16,
      .row_width = cache.size(1),
      .block_positions = cache.size(2)};
}

// A view of a cache as [blocks, block_positions, row_width].
at::Tensor AsRows(const at::Tensor& cache) { return cache.transpose(1, 2); }

//   rows: [tokens, row_width]
void PutRows(const at::Tensor& rows, const TensorStep& step, const at::Tensor& cache) {
  AsRows(cache).index_put_({step.blocks, step.offsets}, rows.to(cache.scalar_type()));
}

// Those of one sequence: [length, row_width].
at::Tensor GatherRows(const TensorStep::Sequence& sequence, const at::Tensor& cache) {
  return AsRows(cache).index_select(0, sequence.blocks).flatten(0, 1).narrow(0, 0, sequence.length);
}

}  // namespace

TensorStep::TensorStep(const PagedStep& step, int64_t block_positions, at::Device device) {
  const auto to_device = [&](const auto& values) {
    return at::tensor(at::ArrayRef(values), at::kLong).to(device);
  };
  std::vector<int64_t> row_blocks, row_offsets;
  for (const TokenRun& sequence : step.sequences) {
    const int64_t length = sequence.start + sequence.count;
    for (int64_t p = sequence.start; p < length; ++p) {
      row_blocks.push_back(sequence.blocks[p / block_positions]);
      row_offsets.push_back(p % block_positions);
    }
    const int64_t held = CeilDiv(length, block_positions);
    const std::vector<int64_t> all(sequence.blocks, sequence.blocks + held);
    sequences.push_back({to_device(all), length, sequence.count});
  }
  positions = to_device(step.positions);
  blocks = to_device(row_blocks);
  offsets = to_device(row_offsets);
}

at::Tensor Attention::WriteAndAttend(const at::Tensor& q, const at::Tensor& rows,
                                     const PagedRowLayout& layout, double scale,
                                     const TensorStep& step, const at::Tensor& cache) {
  PutRows(rows, step, cache);
  std::vector<at::Tensor> out;
  int64_t token = 0;
  for (const TensorStep::Sequence& sequence : step.sequences) {
    const at::Tensor context = GatherRows(sequence, cache).to(q.scalar_type()).unsqueeze(0);
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

void WriteRows(const float* rows, int64_t rows_stride, std::span<const TokenRun> runs,
               const at::Tensor& cache) {
  WritePagedRows(rows, rows_stride, runs, CacheOf(cache), ComputeContext());
}

void Attend(const float* q, int64_t q_stride, const at::Tensor& cache, const PagedRowLayout& layout,
            float scale, std::span<const TokenRun> runs, float* out, int64_t out_stride) {
  PagedAttention(q, q_stride, CacheOf(cache), layout, scale, runs, out, out_stride,
                 ComputeContext());
}

void ReadRows(const at::Tensor& cache, const int32_t* blocks, int64_t length, float* rows) {
  ReadPagedRows(CacheOf(cache), blocks, length, rows);
}

}  // namespace triptych
