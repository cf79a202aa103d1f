// An attention layer, as the decoder sees it.
#ifndef TRIPTYCH_ENGINE_ATTENTION_ATTENTION_H_
#define TRIPTYCH_ENGINE_ATTENTION_ATTENTION_H_

#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kernels/paged_attention.h"
#include "engine/kernels/workspace.h"

namespace triptych {

// The new tokens of one step: of several sequences, one after another.
struct PagedStep {
  std::vector<int64_t> positions;   // of each token in its sequence
  std::vector<TokenRun> sequences;  // in the order of their tokens
  // Of each of them: whether MLA is to attend its tokens by vanilla attention. Empty: none is.
  std::vector<bool> vanilla = {};

  int64_t tokens() const { return static_cast<int64_t>(positions.size()); }
};

// The same step for LibTorch's operations, on the cache's device.
struct TensorStep {
  struct Sequence {
    at::Tensor blocks;  // [blocks] int64, those of positions 0 to length - 1
    int64_t length;     // with the new tokens
    int64_t count;      // of new tokens
  };

  TensorStep(const PagedStep& step, int64_t block_positions, at::Device device);

  at::Tensor positions;             // [tokens] int64, of each token in its sequence
  at::Tensor blocks;                // [tokens] int64, of each token's row
  at::Tensor offsets;               // [tokens] int64, of each token's row in its block
  std::vector<Sequence> sequences;  // in the order of their tokens
};

// Const methods are safe to call from several threads.
class Attention {
 public:
  virtual ~Attention() = default;

  // Whole sequences: x attends y, with the kind's defining operations (vanilla for MLA).
  // Differentiable. `causal` for self-attention, where x = y.
  //   x: [batch, L1, D1]   y: [batch, L2, D2]   returns [batch, L1, D1]
  virtual at::Tensor Dense(const at::Tensor& x, const at::Tensor& y, bool causal) const = 0;

  // Derives what Paged needs from the weights as they are now: the first form of it if they serve
  // on kernels (linear.h), the second one if not. `vanilla`: whether a step may ask MLA on kernels
  // for vanilla attention.
  virtual void PrepareToServe(bool vanilla) = 0;
  // Frees the weights that Paged does not read. REQUIRES: PrepareToServe(); Dense is not called
  // again.
  virtual void DropDense() = 0;

  // Causal self-attention of new tokens over the paged cache, their own rows included: writes the
  // tokens' rows, then attends. REQUIRES: PrepareToServe().
  // A token's result is the same bits whatever else is in the step, and on any number of threads.
  //   x: [tokens, D]   cache: [blocks, row_width, block_positions] float32 or bfloat16
  //   y: [tokens, D], not overlapping x
  virtual void Paged(const float* x, const PagedStep& step, const at::Tensor& cache,
                     Workspace& workspace, float* y) const = 0;

  // The same on LibTorch's operations alone, in any dtype and on any device. Results may round
  // differently in another batch.
  //   x: [tokens, D]   cache: [blocks, row_width, block_positions]
  //   returns [tokens, D] in x's dtype
  virtual at::Tensor Paged(const at::Tensor& x, const TensorStep& step,
                           const at::Tensor& cache) const = 0;

 protected:
  // Writes `rows` into the cache and attends.
  //   q: [tokens, heads, key_width]   rows: [tokens, row_width]
  //   returns [tokens, heads * value_width]
  static at::Tensor WriteAndAttend(const at::Tensor& q, const at::Tensor& rows,
                                   const PagedRowLayout& layout, double scale,
                                   const TensorStep& step, const at::Tensor& cache);
};

// WritePagedRows, PagedAttention and ReadPagedRows over a layer's cache, on ComputeContext().
//   cache: [blocks, row_width, block_positions] float32 or bfloat16
void WriteRows(const float* rows, int64_t rows_stride, std::span<const TokenRun> runs,
               const at::Tensor& cache);
void Attend(const float* q, int64_t q_stride, const at::Tensor& cache, const PagedRowLayout& layout,
            float scale, std::span<const TokenRun> runs, float* out, int64_t out_stride);
void ReadRows(const at::Tensor& cache, const int32_t* blocks, int64_t length, float* rows);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_ATTENTION_ATTENTION_H_
