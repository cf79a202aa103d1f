#include "engine/backend/cuda/prefill.cuh"
#include "engine/backend/cuda/split_kv.cuh"

namespace triptych::cuda {
namespace {

constexpr int kRope = 64;  // rotated elements of a key
constexpr int kGatherThreads = 128;

// Grid (positions, runs): a block copies one cache row.
__global__ void __launch_bounds__(kGatherThreads)
    Gather(const BFloat16* cache, const int32_t* blocks, const PrefillRun* runs, ExpansionPass pass,
           int width, BFloat16* latents) {
  const PrefillRun run = runs[pass.first_run + blockIdx.y];
  const int position = pass.first + blockIdx.x;
  if (position >= min(run.start + run.count, pass.limit)) return;
  const int block = blocks[run.table + position / kBlockPositions];
  const auto* const from = reinterpret_cast<const uint4*>(
      cache + (static_cast<size_t>(block) * kBlockPositions + position % kBlockPositions) * width);
  auto* const to =
      reinterpret_cast<uint4*>(latents + static_cast<size_t>(run.expanded + blockIdx.x) * width);
  for (int i = threadIdx.x; i < width / 8; i += kGatherThreads) to[i] = from[i];
}

struct Parameters {
  ExpandedRows rows;
  ExpansionPass pass;
  float scale_log2;
};

// Keys and values of one head.
template <int C, int V>
struct ExpandedHead {
  const ExpandedRows& rows;
  const PrefillRun& run;
  int first, limit;
  int h;

  __device__ size_t At(int position) const {
    return static_cast<size_t>(run.expanded + position - first);
  }
  __device__ const BFloat16* Key(int position, int column) const {
    return column < C ? rows.keys + (At(position) * rows.heads + h) * C + column
                      : rows.latents + At(position) * rows.latent_width + rows.latent_width -
                            kRope + column - C;
  }
  __device__ const BFloat16* Value(int position, int column) const {
    return rows.values + (At(position) * rows.heads + h) * V + column;
  }
  __device__ size_t Row(int index) const {
    return static_cast<size_t>(run.row + index) * rows.heads + h;
  }
  __device__ const BFloat16* Query(int index, int, int column) const {
    return column < C ? rows.content + Row(index) * C + column
                      : rows.rotary + Row(index) * rows.rotary_stride + column - C;
  }
  __device__ BFloat16* Out(int index, int) const { return rows.out + Row(index) * V; }
  __device__ float* State(int index, int) const {
    return rows.state + (static_cast<size_t>(index) * rows.heads + h) * kPrefillState<V>;
  }
};

// Grid (tiles of rows, H, runs).
template <int C, int V, typename Tiling>
__global__ void __launch_bounds__(Tiling::kThreads) Attend(Parameters p) {
  const PrefillRun run = p.rows.runs[p.pass.first_run + blockIdx.z];
  AttendPrompt<C + kRope, V, Tiling, /*kPlain=*/true>(
      ExpandedHead<C, V>{p.rows, run, p.pass.first, p.pass.limit, static_cast<int>(blockIdx.y)},
      run, 1, ScoreRule{p.scale_log2});
}

// Calls function.operator()<d_qk, d_v>().
template <typename Function>
void ForWidths(int d_qk, int d_v, const Function& function) {
  const auto with_values = [&]<int C>() {
    d_v == 64 ? function.template operator()<C, 64>() : function.template operator()<C, 128>();
  };
  d_qk == 64 ? with_values.template operator()<64>() : with_values.template operator()<128>();
}

}  // namespace

bool SupportsExpandedPrefill(int64_t d_qk, int64_t d_v, int64_t d_rope) {
  return (d_qk == 64 || d_qk == 128) && (d_v == 64 || d_v == 128) && d_rope == kRope;
}

void GatherLatents(const AttentionLayout& layout, const BFloat16* cache, const int32_t* blocks,
                   const PrefillRun* runs, const ExpansionPass& pass, BFloat16* latents,
                   cudaStream_t stream) {
  Launch(Gather, dim3(pass.longest_context, pass.runs), kGatherThreads, 0, stream, cache, blocks,
         runs, pass, layout.row_width, latents);
}

void ExpandedPrefill(const ExpandedRows& rows, int d_qk, int d_v, const ExpansionPass& pass,
                     cudaStream_t stream) {
  const int longest = pass.longest_run;
  ForWidths(d_qk, d_v, [&]<int C, int V>() {
    ForTiling<C + kRope, V>(longest, rows.heads, pass.runs, [&]<typename Tiling>() {
      Launch(Attend<C, V, Tiling>,
             dim3((longest + Tiling::kRows - 1) / Tiling::kRows, rows.heads, pass.runs),
             Tiling::kThreads, Tiling::template SharedBytes<C + kRope, V>(), stream,
             Parameters{rows, pass, rows.scale * kLog2E});
    });
  });
}

void PrepareExpandedPrefill() {
  for (const int d_qk : {64, 128}) {
    for (const int d_v : {64, 128}) {
      ForWidths(d_qk, d_v, [&]<int C, int V>() {
        AllowTiling<C + kRope, V, NarrowTiling>(Attend<C, V, NarrowTiling>);
        AllowTiling<C + kRope, V, WideTiling>(Attend<C, V, WideTiling>);
      });
    }
  }
}

}  // namespace triptych::cuda
