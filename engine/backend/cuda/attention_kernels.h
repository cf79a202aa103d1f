// Attention kernels over the paged cache. A row's result depends on its own sequence only, bit for
// bit: the bounds of splits and tiles are functions of the row's position.
#ifndef TRIPTYCH_ENGINE_BACKEND_CUDA_ATTENTION_KERNELS_H_
#define TRIPTYCH_ENGINE_BACKEND_CUDA_ATTENTION_KERNELS_H_

#include <climits>
#include <cstddef>
#include <cstdint>

#include "engine/backend/cuda/device_memory.h"

namespace triptych::cuda {

// Places of keys and values in a cache row. Query head h reads those of group h mod G.
struct AttentionLayout {
  int heads;        // H
  int groups;       // G
  int key_width;    // the key of group g is at g * key_width
  int value_width;  // its value is at value_offset + g * value_width
  int value_offset;
  int row_width;  // the cache is [blocks, block_positions, row_width]
  int block_positions;
  // Keys of MLA that have inverse norms; number h mod normed_keys is a factor of head h's scores.
  int normed_keys = 0;
};

// AttentionRows::window of layers without a window.
inline constexpr int kEveryPosition = INT_MAX;

// Inputs and outputs of one layer's attention, in device memory.
struct AttentionRows {
  const BFloat16* queries;   // [rows, H, key_width]
  const BFloat16* cache;     // of the layer
  const int32_t* blocks;     // block tables of all sequences, concatenated
  const int32_t* positions;  // [rows]: a row attends positions up to its own; -1: none, result 0
  const int32_t* tables;     // [rows]: where in `blocks` the row's block table begins
  BFloat16* out;             // [rows, H, value_width]
  int rows;
  float scale;  // of the scores
  // The next two are for the general and the grouped kernels only, the last for the general and the
  // latent ones.
  float cap = 0;  // c: a score s becomes c tanh(s / c); 0: it stays
  // Positions that a row attends, its own and those before it. A block of none of them is not
  // read; its number may be anything.
  int window = kEveryPosition;
  const float* inverse_norms = nullptr;  // [blocks, normed_keys, block_positions]
};

// Consecutive positions of one prompt, in consecutive rows.
struct PrefillRun {
  int32_t start;  // the first position
  int32_t count;
  int32_t row;    // the row of the first position
  int32_t table;  // where in `blocks` the block table begins
  // In ExpansionPass: where among the expanded positions those of the run's context begin.
  int32_t expanded = 0;
};
struct PrefillRuns {
  const PrefillRun* runs;  // [count], in device memory
  int count;
  int longest;  // the largest PrefillRun::count
};

// The tiles of prefill kernels divide it.
inline constexpr int kPassAlignment = 64;
// Elements of a prefill row's state between two passes over its context, with values of V elements.
template <int V>
inline constexpr int kPrefillState = V + 8;

// Runs whose contexts are expanded together. A context longer than all expanded positions takes
// several passes, one after another, over its own run alone.
struct ExpansionPass {
  int first_run;
  int runs;
  int first,
      limit;        // the positions of every context that are expanded, multiples of kPassAlignment
  int positions;    // of all runs together
  int longest_run;  // rows of the longest run
  int longest_context;  // most positions of a run that are expanded

  bool operator==(const ExpansionPass&) const = default;
};

// Inputs and outputs of one pass of one MLA layer over expanded keys and values.
struct ExpandedRows {
  const PrefillRun* runs;   // of all passes
  const BFloat16* content;  // [rows, H, d_qk]: the part of queries that is not rotated
  const BFloat16* rotary;   // [rows, H] of 64 elements, `rotary_stride` apart
  int64_t rotary_stride;
  const BFloat16* latents;  // [positions, latent_width]: latents, then the rotated key of all heads
  const BFloat16* keys;     // [positions, H, d_qk]
  const BFloat16* values;   // [positions, H, d_v]
  float* state;             // [rows of the longest run, H, kPrefillState<d_v>]
  BFloat16* out;            // [rows, H, d_v]
  int heads;
  int latent_width;  // r + 64
  float scale;
};

// Partial results of rows whose context is split over several thread blocks (split-KV decoding).
struct Splits {
  int most;       // splits of the longest row
  float* sums;    // [rows, H, most, value_width]: values times weights, not normalized
  float2* stats;  // [rows, H, most]: maximum score (base 2), sum of weights
};

// --- general_attention.cu: any widths, without tensor cores.
void GeneralAttention(const AttentionLayout& layout, const AttentionRows& rows,
                      cudaStream_t stream);

// --- grouped_decode.cu: heads of 64 or 128 elements, at most 16 heads per group, blocks of 16.
bool SupportsGroupedDecode(const AttentionLayout& layout);
// The most splits of a row of a layer with this window, in contexts of at most `length` positions,
// a power of two.
int GroupedSplits(int length, int window = kEveryPosition);
void GroupedDecode(const AttentionLayout& layout, const AttentionRows& rows, const Splits& splits,
                   cudaStream_t stream);

// --- grouped_prefill.cu: heads of 64 or 128 elements, blocks of 16.
bool SupportsGroupedPrefill(const AttentionLayout& layout);
// `rows` covers all rows of the step; the runs name those that are attended.
void GroupedPrefill(const AttentionLayout& layout, const AttentionRows& rows,
                    const PrefillRuns& runs, cudaStream_t stream);

// --- latent_attention.cu: ranks of 256 or 512 with 64 rotated elements, a multiple of 16 heads,
// blocks of 16. Also for prompt rows, whose context is never split.
bool SupportsLatentAttention(const AttentionLayout& layout);
int LatentSplits(int length);
void LatentAttention(const AttentionLayout& layout, const AttentionRows& rows, const Splits& splits,
                     bool prefill, cudaStream_t stream);

// --- expanded_prefill.cu: keys and values of 64 or 128 elements with 64 rotated, blocks of 16.
bool SupportsExpandedPrefill(int64_t d_qk, int64_t d_v, int64_t d_rope);
// Copies the cache rows of a pass to consecutive rows. latents: [pass.positions, row_width]
void GatherLatents(const AttentionLayout& layout, const BFloat16* cache, const int32_t* blocks,
                   const PrefillRun* runs, const ExpansionPass& pass, BFloat16* latents,
                   cudaStream_t stream);
void ExpandedPrefill(const ExpandedRows& rows, int d_qk, int d_v, const ExpansionPass& pass,
                     cudaStream_t stream);

// Raise the shared-memory limits of these kernels on the current device. Call before their first
// launch there.
void PrepareGroupedPrefill();
void PrepareLatentAttention();
void PrepareExpandedPrefill();

}  // namespace triptych::cuda

#endif  // TRIPTYCH_ENGINE_BACKEND_CUDA_ATTENTION_KERNELS_H_
