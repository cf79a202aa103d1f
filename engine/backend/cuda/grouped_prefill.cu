#include <climits>

#include "engine/backend/cuda/prefill.cuh"
#include "engine/backend/cuda/split_kv.cuh"

namespace triptych::cuda {
namespace {

struct Parameters {
  AttentionLayout layout;
  AttentionRows rows;
  const PrefillRun* runs;
  ScoreRule rule;
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
template <int D, bool kPlain, typename Tiling>
__global__ void __launch_bounds__(Tiling::kThreads) Attend(Parameters p) {
  const PrefillRun run = p.runs[blockIdx.z];
  AttendPrompt<D, D, Tiling, kPlain>(PagedGroup<D>{p, run, static_cast<int>(blockIdx.y)}, run,
                                     p.layout.heads / p.layout.groups, p.rule);
}

template <int D>
void Enqueue(const Parameters& p, const PrefillRuns& runs, cudaStream_t stream) {
  const int groups = p.layout.groups, rows = runs.longest * (p.layout.heads / groups);
  ForTiling<D, D>(rows, groups, runs.count, [&]<typename Tiling>() {
    Launch(p.rule.plain() ? Attend<D, true, Tiling> : Attend<D, false, Tiling>,
           dim3((rows + Tiling::kRows - 1) / Tiling::kRows, groups, runs.count), Tiling::kThreads,
           Tiling::template SharedBytes<D, D>(), stream, p);
  });
}

template <int D, typename Tiling>
void Prepare() {
  AllowTiling<D, D, Tiling>(Attend<D, true, Tiling>);
  AllowTiling<D, D, Tiling>(Attend<D, false, Tiling>);
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
  const Parameters parameters{layout, rows, runs.runs, RuleOf(rows)};
  layout.key_width == 64 ? Enqueue<64>(parameters, runs, stream)
                         : Enqueue<128>(parameters, runs, stream);
}

void PrepareGroupedPrefill() {
  Prepare<64, NarrowTiling>();
  Prepare<64, WideTiling>();
  Prepare<128, NarrowTiling>();
  Prepare<128, WideTiling>();
}

}  // namespace triptych::cuda
