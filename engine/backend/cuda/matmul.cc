#include "engine/backend/cuda/matmul.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "engine/backend/cuda/row_kernels.h"

namespace triptych::cuda {
namespace {

constexpr int kMostCandidates = 24;

// The number of rows that cuBLASLt ranks its candidates for.
int64_t TypicalRows(RowKind kind) { return kind == RowKind::kDecode ? 64 : 2048; }
// The number of inputs that cuBLASLt ranks its candidates for. For few rows of many inputs it
// prefers split-k, and ranks candidates without a split that are many times slower than those for
// fewer inputs.
int64_t RankedInputs(RowKind kind, int64_t inputs) {
  return kind == RowKind::kDecode ? std::min<int64_t>(inputs, 2048) : inputs;
}
// The largest number of rows in the trial of a candidate.
int64_t TrialRows(RowKind kind) { return kind == RowKind::kDecode ? 512 : 2048; }

// Throws CudaError.
void CheckLt(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw CudaError(std::string("cuBLASLt: ") + cublasLtGetStatusName(status));
}

int64_t BytesOf(MatmulOutput output) { return output == MatmulOutput::kBFloat16 ? 2 : 4; }

// The product in the terms of cuBLASLt, whose matrices are column-major: y^T = w x^T.
class Description {
 public:
  // Covers the first `inputs` inputs only.
  Description(const MatmulShape& shape, int64_t inputs, int64_t rows) {
    CheckLt(cublasLtMatmulDescInit(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t of_w = shape.transposed ? CUBLAS_OP_N : CUBLAS_OP_T;
    CheckLt(cublasLtMatmulDescSetAttribute(&operation_, CUBLASLT_MATMUL_DESC_TRANSA, &of_w,
                                           sizeof of_w));
    const cudaDataType_t y_type =
        shape.output == MatmulOutput::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F;
    if (shape.transposed) {
      CheckLt(cublasLtMatrixLayoutInit(&w_, CUDA_R_16BF, shape.outputs, inputs, shape.outputs));
    } else {
      CheckLt(cublasLtMatrixLayoutInit(&w_, CUDA_R_16BF, inputs, shape.outputs, shape.inputs));
    }
    CheckLt(cublasLtMatrixLayoutInit(&x_, CUDA_R_16BF, inputs, rows, shape.x_stride));
    CheckLt(cublasLtMatrixLayoutInit(&y_, y_type, shape.outputs, rows, shape.y_stride));
    if (shape.heads == 1) return;
    SetBatch(&w_, shape.heads, shape.inputs * shape.outputs);
    SetBatch(&x_, shape.heads, shape.x_head_stride);
    SetBatch(&y_, shape.heads, shape.y_head_stride);
  }

  cublasLtMatmulDesc_t operation() { return &operation_; }
  cublasLtMatrixLayout_t w() { return &w_; }
  cublasLtMatrixLayout_t x() { return &x_; }
  cublasLtMatrixLayout_t y() { return &y_; }

 private:
  static void SetBatch(cublasLtMatrixLayout_t layout, int64_t heads, int64_t stride) {
    const auto count = static_cast<int32_t>(heads);
    CheckLt(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                             sizeof count));
    CheckLt(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                             &stride, sizeof stride));
  }

  cublasLtMatmulDescOpaque_t operation_;
  cublasLtMatrixLayoutOpaque_t w_, x_, y_;
};

// cuBLASLt's algorithms without split-k, best first by its heuristics. Split-k sums differ with the
// number of rows.
std::vector<cublasLtMatmulAlgo_t> Candidates(cublasLtHandle_t handle, const MatmulShape& shape,
                                             RowKind kind) {
  Description product(shape, RankedInputs(kind, shape.inputs), TypicalRows(kind));
  cublasLtMatmulPreferenceOpaque_t preference;
  CheckLt(cublasLtMatmulPreferenceInit(&preference));
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    CheckLt(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<size_t>(Matmuls::kWorkspaceBytes));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE});
  std::vector<cublasLtMatmulHeuristicResult_t> results(kMostCandidates);
  int count = 0;
  if (cublasLtMatmulAlgoGetHeuristic(handle, product.operation(), product.w(), product.x(),
                                     product.y(), product.y(), &preference, kMostCandidates,
                                     results.data(), &count) != CUBLAS_STATUS_SUCCESS) {
    return {};
  }
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < count; ++i) {
    int32_t split = 0;
    size_t written = 0;
    CheckLt(cublasLtMatmulAlgoConfigGetAttribute(&results[i].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                                 &split, sizeof split, &written));
    if (results[i].state == CUBLAS_STATUS_SUCCESS && split <= 1) {
      algorithms.push_back(results[i].algo);
    }
  }
  return algorithms;
}

}  // namespace

std::string CublasLtVersion() {
  const size_t version = cublasLtGetVersion();
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

MatmulShape Dense(int64_t inputs, int64_t outputs, MatmulOutput output) {
  return {.inputs = inputs,
          .outputs = outputs,
          .output = output,
          .transposed = false,
          .heads = 1,
          .x_stride = inputs,
          .y_stride = outputs,
          .x_head_stride = 0,
          .y_head_stride = 0};
}

Matmuls::Matmuls(cudaStream_t stream) : stream_(stream), workspace_(kWorkspaceBytes) {
  cublasLtHandle_t handle = nullptr;
  CheckLt(cublasLtCreate(&handle));
  handle_.reset(handle);
}

cublasStatus_t Matmuls::Try(const cublasLtMatmulAlgo_t& algorithm, const MatmulShape& shape,
                            const BFloat16* w, const BFloat16* x, int64_t rows, void* y) const {
  Description product(shape, shape.inputs, rows);
  const float one = 1, kept = shape.output == MatmulOutput::kAddFloat32 ? 1 : 0;
  return cublasLtMatmul(handle_.get(), product.operation(), &one, w, product.w(), x, product.x(),
                        &kept, y, product.y(), y, product.y(), &algorithm, workspace_.get(),
                        static_cast<size_t>(kWorkspaceBytes), stream_);
}

void Matmuls::Run(RowKind kind, const MatmulShape& shape, const BFloat16* w, const BFloat16* x,
                  int64_t rows, void* y) const {
  const Algorithm& algorithm = algorithms_.at({kind, shape});
  if (algorithm) {
    CheckLt(Try(*algorithm, shape, w, x, rows, y));
  } else {
    GeneralMatmul(shape, w, x, rows, y, stream_);
  }
}

void Matmuls::Prepare(RowKind kind, const MatmulShape& shape, const BFloat16* w) {
  const std::pair key{kind, shape};
  if (!algorithms_.contains(key)) algorithms_.emplace(key, Choose(kind, shape, w));
}

int64_t Matmuls::prepared_for_cublaslt() const {
  return std::count_if(algorithms_.begin(), algorithms_.end(),
                       [](const auto& entry) { return entry.second.has_value(); });
}

Matmuls::Algorithm Matmuls::Choose(RowKind kind, const MatmulShape& shape,
                                   const BFloat16* w) const {
  // Tensor cores need rows in multiples of 16 bytes.
  for (const int64_t elements : {shape.inputs, shape.outputs, shape.x_stride, shape.y_stride,
                                 shape.x_head_stride, shape.y_head_stride}) {
    if (elements % 8 != 0) return {};
  }
  const int64_t rows = TrialRows(kind);
  const DeviceArray<BFloat16> x(rows * shape.x_stride);
  const DeviceArray<char> y(rows * shape.y_stride * BytesOf(shape.output));
  FillRandom(x.get(), x.size(), 1, 1, stream_);
  for (const cublasLtMatmulAlgo_t& algorithm : Candidates(handle_.get(), shape, kind)) {
    if (IsBatchInvariant(algorithm, kind, shape, w, x.get(), y.get())) return algorithm;
  }
  return {};
}

bool Matmuls::IsBatchInvariant(const cublasLtMatmulAlgo_t& algorithm, RowKind kind,
                               const MatmulShape& shape, const BFloat16* w, const BFloat16* x,
                               void* y) const {
  constexpr int64_t kCompared = 96;  // rows at the start and at the end
  const int64_t row_bytes = shape.y_stride * BytesOf(shape.output), most = TrialRows(kind);
  std::vector<char> expected(kCompared * row_bytes), found(kCompared * row_bytes);
  // Rows first to first + count - 1 of a batch that starts at row `from`.
  const auto compute = [&](int64_t from, int64_t rows, int64_t first, int64_t count, char* to) {
    Check(cudaMemsetAsync(y, 0, rows * row_bytes, stream_));
    if (Try(algorithm, shape, w, x + from * shape.x_stride, rows, y) != CUBLAS_STATUS_SUCCESS) {
      return false;
    }
    Check(cudaMemcpyAsync(to, static_cast<char*>(y) + first * row_bytes, count * row_bytes,
                          cudaMemcpyDeviceToHost, stream_));
    Check(cudaStreamSynchronize(stream_));
    return true;
  };
  const auto same = [&](int64_t row, int64_t count) {
    return std::memcmp(found.data(), expected.data() + row * row_bytes, count * row_bytes) == 0;
  };
  if (!compute(0, kCompared, 0, kCompared, expected.data())) return false;
  for (const auto& [from, rows] :
       {std::pair<int64_t, int64_t>{0, 1}, {5, 1}, {3, 2}, {40, 7}, {8, 16}, {17, 33}}) {
    if (!compute(from, rows, 0, rows, found.data()) || !same(from, rows)) return false;
  }
  // A different order of summation changes few bfloat16 elements, so a single row may not show it.
  for (int64_t row = 0; row < kCompared / 2; ++row) {
    if (!compute(row, 1, 0, 1, found.data()) || !same(row, 1)) return false;
  }
  for (const int64_t rows : {most, most - 1, most / 2 + 9}) {
    if (!compute(0, rows, 0, kCompared, found.data()) || !same(0, kCompared)) return false;
  }
  // The last rows of a large batch, against a batch of their own.
  return compute(most - kCompared, kCompared, 0, kCompared, expected.data()) &&
         compute(0, most, most - kCompared, kCompared, found.data()) && same(0, kCompared);
}

}  // namespace triptych::cuda
