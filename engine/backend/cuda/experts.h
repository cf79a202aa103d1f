// Kernels of a mixture of experts (engine/definitions.md#experts): the choice of each row's
// experts, products by their weights, the weighted sum. A row's result depends on that row only,
// bit for bit. Every function enqueues on `stream`. None waits for the device, so that graphs can
// hold them.
#ifndef TRIPTYCH_ENGINE_BACKEND_CUDA_EXPERTS_H_
#define TRIPTYCH_ENGINE_BACKEND_CUDA_EXPERTS_H_

#include <cstdint>

#include "engine/backend/cuda/device_memory.h"
#include "engine/backend/cuda/matmul.h"

namespace triptych::cuda {

// Rules of the choice. Weights are in device memory.
struct ExpertRouter {
  const float* matrix = nullptr;  // [experts, width]
  const float* bias = nullptr;    // [experts], added to scores for the choice only; or null
  int width = 0;
  int experts = 0;        // of the layer, at most 4096
  int choices = 0;        // of a row
  bool sigmoid = false;   // scores are sigmoids; otherwise a softmax over all experts
  int groups = 1;         // of consecutive experts; divides `experts`
  int chosen_groups = 1;  // that a row chooses from; they have at least `choices` experts
  int best_of_group = 1;  // 1 or 2: the experts whose scores rank a group by their sum
  bool normalize = false;
  float scale = 1;
};

// The choices of one expert.
struct ExpertPart {
  int32_t first;  // in RoutedRows::sorted
  int32_t count;
};

// The choices of a step's rows, in device memory. Choice i is the expert i % choices of row
// i / choices.
struct RoutedRows {
  int32_t* experts;   // [rows, choices], ascending in each row; -1 in padding rows
  float* weights;     // [rows, choices], unset in padding rows
  int32_t* sorted;    // [rows * choices]: choices by expert, then by row; none of padding rows
  ExpertPart* parts;  // [experts]
};

// Fills `routed`. The lower index wins among equal scores. Logits that are not finite give valid
// experts, and weights of any value.
//   x: [rows, width]      positions: [rows], -1 in padding rows
//   logits: [rows, experts], scratch
//   totals: [experts], to which the number of each expert's choices is added
void RouteRows(const ExpertRouter& router, const BFloat16* x, const int32_t* positions, int rows,
               float* logits, const RoutedRows& routed, int64_t* totals, cudaStream_t stream);

// Whether tensor cores multiply by the experts' weights: if inputs are a multiple of 8 and outputs
// are even. GeneralMatmul multiplies others.
bool TensorCoresMultiply(const MatmulShape& shape);

// Row i of y is row i / sharing of x times the weights of choice i's expert; other rows of y stay.
// `shape`: one expert's, dense; its output is kBFloat16 or kFloat32.
//   w: [experts, outputs, inputs]   x: [rows * choices / sharing, inputs]
//   y: [rows * choices, outputs]
void MultiplyByExperts(const MatmulShape& shape, const ExpertRouter& router, const BFloat16* w,
                       const BFloat16* x, int sharing, const RoutedRows& routed, int rows, void* y,
                       cudaStream_t stream);

// Raises the kernels' limits of shared memory. Call before MultiplyByExperts.
void PrepareExperts();

struct ExpertSum {
  const float* outputs;  // [rows, choices, width], of the chosen experts
  const float* shared;   // [rows, width], of the shared MLP, or null
  const float* gate;     // [width], of the shared MLP, or null
  const BFloat16* x;     // [rows, width], which the gate multiplies
};
// y: [rows, width] += shared MLP times the sigmoid of its gate, plus the weighted outputs, in the
// order of the experts' indices.
void AddExperts(const ExpertSum& sum, const ExpertRouter& router, const RoutedRows& routed,
                const int32_t* positions, int rows, float* y, cudaStream_t stream);

}  // namespace triptych::cuda

#endif  // TRIPTYCH_ENGINE_BACKEND_CUDA_EXPERTS_H_
