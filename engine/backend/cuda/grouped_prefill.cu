#include <climits>

#include "engine/backend/cuda/prefill.cuh"
#include "engine/backend/cuda/split_kv.cuh"

namespace triptych::cuda {
namespace {

using Tiling = PrefillTiling<8, 1, 64>;

struct Parameters {
  AttentionLayout layout;
  AttentionRows rows;
  const PrefillRun* runs;
  float scale_log2;
};

// Keys and values of one group in the paged cache, and its heads' rows.
template <int D>
struct PagedGroup {
  const Parameters& p;
  const PrefillRun& run;
  int group;
  static constexpr int first = 0, limit = INT_MAX;

  __device__ const BFloat16* CacheRow(int position) const {
    const int block = p.rows.blocks[run.table + position / kBlockPositions];
    return p.rows.cache +
           (static_cast<size_t>(block) * kBlockPositions + position % kBlockPositions) * 2 *
               p.layout.groups * D;
  }
  __device__ const BFloat16* Key(int position, int column) const {
    return CacheRow(position) + group * D + column;
  }
  __device__ const BFloat16* Value(int position, int column) const {
    return CacheRow(position) + (p.layout.groups + group) * D + column;
  }
  __device__ size_t Offset(int index, int head) const {
    return (static_cast<size_t>(run.row + index) * p.layout.heads + head * p.layout.groups +
            group) *
           D;
  }
  __device__ const BFloat16* Query(int index, int head, int column) const {
    return p.rows.queries + Offset(index, head) + column;
  }
  __device__ BFloat16* Out(int index, int head) const { return p.rows.out + Offset(index, head); }
  __device__ float* State(int, int) const { return nullptr; }  // one pass
};

// Grid (tiles of rows, G, runs).
template <int D>
__global__ void __launch_bounds__(Tiling::kThreads) Attend(Parameters p) {
  const PrefillRun run = p.runs[blockIdx.z];
  AttendPrompt<D, D, Tiling>(PagedGroup<D>{p, run, static_cast<int>(blockIdx.y)}, run,
                             p.layout.heads / p.layout.groups, p.scale_log2);
}

}  // namespace

bool SupportsGroupedPrefill(const AttentionLayout& layout) {
  const int width = layout.key_width;
  return (width == 64 || width == 128) && layout.value_width == width &&
         layout.value_offset == layout.groups * width &&
         layout.row_width == 2 * layout.groups * width && layout.block_positions == kBlockPositions;
}

void GroupedPrefill(const AttentionLayout& layout, const AttentionRows& rows,
                    const PrefillRuns& runs, cudaStream_t stream) {
  const int most_rows = runs.longest * (layout.heads / layout.groups);
  const dim3 grid((most_rows + Tiling::kRows - 1) / Tiling::kRows, layout.groups, runs.count);
  const Parameters parameters{layout, rows, runs.runs, rows.scale * kLog2E};
  if (layout.key_width == 64) {
    Launch(Attend<64>, grid, Tiling::kThreads, Tiling::SharedBytes<64, 64>(), stream, parameters);
  } else {
    Launch(Attend<128>, grid, Tiling::kThreads, Tiling::SharedBytes<128, 128>(), stream,
           parameters);
  }
}

void PrepareGroupedPrefill() {
  AllowShared(Attend<64>, Tiling::SharedBytes<64, 64>());
  AllowShared(Attend<128>, Tiling::SharedBytes<128, 128>());
}

}  // namespace triptych::cuda
