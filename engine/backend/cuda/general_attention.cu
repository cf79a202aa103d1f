#include "engine/backend/cuda/split_kv.cuh"

namespace triptych::cuda {
namespace {

constexpr int kThreads = 128;

// Grid (H, rows). A tile has one position per thread.
__global__ void __launch_bounds__(kThreads)
    AttendOneRow(AttentionLayout layout, AttentionRows rows, ScoreRule rule) {
  __shared__ float weights[kThreads], of_warps[kWarp];
  float* const query = reinterpret_cast<float*>(DynamicShared());  // [key_width]
  float* const sums = query + layout.key_width;                    // [value_width]
  const int head = blockIdx.x, group = head % layout.groups;
  const size_t row = blockIdx.y, of_row = row * layout.heads + head;
  const int length = rows.positions[row] + 1;
  const int32_t* const table = rows.blocks + rows.tables[row];
  const auto block = [&](int position) {
    return static_cast<size_t>(table[position / layout.block_positions]);
  };
  const auto at = [&](int position) {
    return rows.cache +
           (block(position) * layout.block_positions + position % layout.block_positions) *
               layout.row_width;
  };
  const float factor = rule.inside > 0 ? rule.inside : rule.scale_log2;
  for (int i = threadIdx.x; i < layout.key_width; i += kThreads) {
    query[i] = ToFloat(rows.queries[of_row * layout.key_width + i]) * factor;
  }
  for (int i = threadIdx.x; i < layout.value_width; i += kThreads) sums[i] = 0;
  __syncthreads();
  float most = -INFINITY, sum = 0;
  for (int base = FirstAttended(length, rule.window); base < length; base += kThreads) {
    const int position = base + static_cast<int>(threadIdx.x), seen = min(length - base, kThreads);
    float score = -INFINITY;
    if (position < length) {
      const BFloat16* const key = at(position) + group * layout.key_width;
      score = 0;
      for (int i = 0; i < layout.key_width; ++i) score += query[i] * ToFloat(key[i]);
      if (rule.inside > 0) score = tanhf(score) * rule.scale_log2;
      if (layout.normed_keys > 0) {
        const size_t of_key = block(position) * layout.normed_keys + head % layout.normed_keys;
        score *=
            rows.inverse_norms[of_key * layout.block_positions + position % layout.block_positions];
      }
    }
    const float before = most;
    most = fmaxf(most, BlockMax(score, of_warps));
    const float weight = exp2f(score - most), fade = exp2f(before - most);
    weights[threadIdx.x] = weight;
    sum = sum * fade + BlockSum(weight, of_warps);  // a barrier: all weights are stored
    for (int d = threadIdx.x; d < layout.value_width; d += kThreads) {
      float value = sums[d] * fade;
      for (int i = 0; i < seen; ++i) {
        value += weights[i] *
                 ToFloat(at(base + i)[layout.value_offset + group * layout.value_width + d]);
      }
      sums[d] = value;
    }
    __syncthreads();
  }
  for (int d = threadIdx.x; d < layout.value_width; d += kThreads) {
    rows.out[of_row * layout.value_width + d] = ToBFloat16(length > 0 ? sums[d] / sum : 0);
  }
}

}  // namespace

void GeneralAttention(const AttentionLayout& layout, const AttentionRows& rows,
                      cudaStream_t stream) {
  Launch(AttendOneRow, dim3(layout.heads, rows.rows), kThreads,
         (layout.key_width + layout.value_width) * sizeof(float), stream, layout, rows,
         RuleOf(rows));
}

}  // namespace triptych::cuda
