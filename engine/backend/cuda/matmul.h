// Matrix products by cuBLASLt. A row has the same bits whatever the number of rows.
#ifndef TRIPTYCH_ENGINE_BACKEND_CUDA_MATMUL_H_
#define TRIPTYCH_ENGINE_BACKEND_CUDA_MATMUL_H_

#include <cublasLt.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "engine/backend/cuda/device_memory.h"

namespace triptych::cuda {

// Rows of generated tokens are few, rows of prompts many: each kind has its own algorithm.
enum class RowKind { kDecode, kPrefill };

enum class MatmulOutput {
  kBFloat16,
  kFloat32,
  kAddFloat32,  // added to what y holds
};

// y = x w^T for each of `heads` heads: x [rows, inputs], w [outputs, inputs], y [rows, outputs]. If
// `transposed`, w is stored as [inputs, outputs].
// The weights of the heads are contiguous. Within a row of x and y, heads are `x_head_stride` and
// `y_head_stride` elements apart; rows are `x_stride` and `y_stride` apart.
struct MatmulShape {
  int64_t inputs = 0;
  int64_t outputs = 0;
  MatmulOutput output = MatmulOutput::kBFloat16;
  bool transposed = false;
  int64_t heads = 1;
  int64_t x_stride = 0;
  int64_t y_stride = 0;
  int64_t x_head_stride = 0;
  int64_t y_head_stride = 0;

  auto operator<=>(const MatmulShape&) const = default;
};

// The version of the loaded library: "13.0.2". REQUIRES: LoadCublasLt has succeeded.
std::string CublasLtVersion();

// One head, dense rows.
MatmulShape Dense(int64_t inputs, int64_t outputs, MatmulOutput output);

// Not thread-safe.
class Matmuls {
 public:
  static constexpr int64_t kWorkspaceBytes = int64_t{64} << 20;

  explicit Matmuls(cudaStream_t stream);

  // Chooses the algorithm for a shape and kind of row. Tries cuBLASLt's candidates without split-k
  // in the order of its heuristics, which is always the same for one library and GPU. Takes the
  // first under which rows have the same bits in batches of all sizes tried, or GeneralMatmul if
  // there is none. `w`: a weight of the shape, for the trial.
  void Prepare(RowKind kind, const MatmulShape& shape, const BFloat16* w);

  // Enqueues the product. REQUIRES: Prepare was called for this kind and shape; x and y start at a
  // multiple of 16 rows of an array.
  void Run(RowKind kind, const MatmulShape& shape, const BFloat16* w, const BFloat16* x,
           int64_t rows, void* y) const;

  int64_t prepared() const { return static_cast<int64_t>(algorithms_.size()); }
  int64_t prepared_for_cublaslt() const;

 private:
  struct Destroy {
    void operator()(cublasLtHandle_t handle) const { cublasLtDestroy(handle); }
  };
  using Algorithm = std::optional<cublasLtMatmulAlgo_t>;  // absent: GeneralMatmul

  cublasStatus_t Try(const cublasLtMatmulAlgo_t& algorithm, const MatmulShape& shape,
                     const BFloat16* w, const BFloat16* x, int64_t rows, void* y) const;
  Algorithm Choose(RowKind kind, const MatmulShape& shape, const BFloat16* w) const;
  // Whether a row has the same bits in batches of every size.
  bool IsBatchInvariant(const cublasLtMatmulAlgo_t& algorithm, RowKind kind,
                        const MatmulShape& shape, const BFloat16* w, const BFloat16* x,
                        void* y) const;

  cudaStream_t stream_;
  std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, Destroy> handle_;
  DeviceArray<char> workspace_;
  std::map<std::pair<RowKind, MatmulShape>, Algorithm> algorithms_;
};

// Matrices of experts, one after the other, of which each row takes one.
struct Routing {
  const int32_t* experts = nullptr;  // [rows], in device memory; -1: skips the row. Null: all 0
  int sharing = 1;                   // rows of y for each row of x
};

// --- general_matmul.cu: one warp per element, any shape.
void GeneralMatmul(const MatmulShape& shape, const BFloat16* w, const BFloat16* x, int64_t rows,
                   void* y, cudaStream_t stream, const Routing& routing = {});

}  // namespace triptych::cuda

#endif  // TRIPTYCH_ENGINE_BACKEND_CUDA_MATMUL_H_
