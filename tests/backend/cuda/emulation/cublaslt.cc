// Emulation of the cuBLASLt functions that the backend calls.
#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "engine/backend/cuda/load_cublaslt.h"
#include "tests/backend/cuda/emulation/kernel_threads.h"

namespace {

// Algorithms in the heuristic's order. Only the last computes bit-identical rows in batches of
// every size.
enum Algorithm : int32_t {
  kSplitK,       // reports that it splits the sum; rounds partial sums in batches of 4 rows
  kRoundsAlone,  // rounds partial sums to bfloat16 in batches of one row
  kInvariant,
  kAlgorithms,
};

// The contents of a matrix layout. Matrices are column-major.
struct Layout {
  int64_t rows, columns, leading, batch_stride;
  int32_t type, batches;
};
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));

Layout Read(cublasLtMatrixLayout_t layout) {
  Layout read;
  std::memcpy(&read, layout, sizeof read);
  return read;
}

constexpr int kLanes = 8;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

// Matrices contain bfloat16 bits, which are the upper halves of float32.
float ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
// Rounds to nearest, ties to even. NaN stays NaN.
uint16_t ToBFloat16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
  return static_cast<uint16_t>((x != x ? bits | 0x400000 : rounded) >> 16);
}

// Products of dense float32 matrices: x [rows, inputs], w [outputs / kLanes, inputs, kLanes].
struct Product {
  int64_t rows, inputs, outputs;
  const float* x;
  const float* w;
  bool rounded;  // partial sums over half of the inputs are rounded to bfloat16
  float* y;      // [rows, outputs]
};

// Adds the products with inputs begin to end - 1.
template <int kRows>
__attribute__((always_inline)) inline void Accumulate(const float* x, const float* w,
                                                      int64_t inputs, int64_t begin, int64_t end,
                                                      Lanes (&sums)[kRows]) {
  Lanes of_rows[kRows];
  for (int i = 0; i < kRows; ++i) of_rows[i] = sums[i];
  for (int64_t k = begin; k < end; ++k) {
    Lanes of_w;
    std::memcpy(&of_w, w + k * kLanes, sizeof of_w);
    for (int i = 0; i < kRows; ++i) of_rows[i] += x[i * inputs + k] * of_w;
  }
  for (int i = 0; i < kRows; ++i) sums[i] = of_rows[i];
}

// kLanes outputs of kRows rows. A row's order of summation does not depend on kRows.
template <int kRows>
__attribute__((always_inline)) inline void MultiplyRows(const Product& product, int64_t row,
                                                        int64_t output) {
  const int64_t inputs = product.inputs;
  const float* const x = product.x + row * inputs;
  const float* const w = product.w + output * inputs;
  Lanes sums[kRows] = {};
  Accumulate<kRows>(x, w, inputs, 0, inputs / 2, sums);
  if (product.rounded) {
    for (Lanes& of_row : sums) {
      for (int i = 0; i < kLanes; ++i) of_row[i] = ToFloat(ToBFloat16(of_row[i]));
    }
  }
  Accumulate<kRows>(x, w, inputs, inputs / 2, inputs, sums);
  for (int i = 0; i < kRows; ++i) {
    std::memcpy(product.y + (row + i) * product.outputs + output, &sums[i], sizeof sums[i]);
  }
}

__attribute__((target_clones("avx2", "default"))) void Multiply(const Product& product) {
  constexpr int64_t kRows = 6, kBlockRows = 8 * kRows;  // a block's outputs stay in the cache
  for (int64_t first = 0; first < product.rows; first += kBlockRows) {
    const int64_t end = std::min(first + kBlockRows, product.rows);
    for (int64_t output = 0; output < product.outputs; output += kLanes) {
      int64_t row = first;
      for (; row + kRows <= end; row += kRows) MultiplyRows<kRows>(product, row, output);
      for (; row < end; ++row) MultiplyRows<1>(product, row, output);
    }
  }
}

// Packs [outputs, inputs], or [inputs, outputs] if `transposed`, into Product's layout.
std::vector<float> PackWeights(const uint16_t* w, int64_t inputs, int64_t outputs,
                               bool transposed) {
  std::vector<float> packed(inputs * outputs);
  for (int64_t output = 0; output < outputs; ++output) {
    float* const to = &packed[output / kLanes * kLanes * inputs + output % kLanes];
    for (int64_t k = 0; k < inputs; ++k) {
      to[k * kLanes] = ToFloat(w[transposed ? k * outputs + output : output * inputs + k]);
    }
  }
  return packed;
}

bool Aligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static int one;
  *handle = reinterpret_cast<cublasLtHandle_t>(&one);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE" : "another status";
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t, size_t, cublasComputeType_t,
                                               cudaDataType_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  if (attribute != CUBLASLT_MATMUL_DESC_TRANSA || bytes != sizeof(cublasOperation_t)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::memcpy(operation, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t,
                                                 cudaDataType type, uint64_t rows, uint64_t columns,
                                                 int64_t leading) {
  const Layout made{static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading, 0, type, 1};
  std::memcpy(layout, &made, sizeof made);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  Layout changed = Read(layout);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == sizeof changed.batches) {
    std::memcpy(&changed.batches, value, bytes);
  } else if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET &&
             bytes == sizeof changed.batch_stride) {
    std::memcpy(&changed.batch_stride, value, bytes);
  } else {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::memcpy(layout, &changed, sizeof changed);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int most,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* count) {
  *count = std::min<int>(most, kAlgorithms);
  for (int i = 0; i < *count; ++i) {
    results[i] = {};
    results[i].algo.data[0] = static_cast<uint64_t>(i);
    results[i].state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value, size_t bytes, size_t* written) {
  const int32_t splits = algorithm->data[0] == kSplitK ? 2 : 1;
  if (attribute != CUBLASLT_ALGO_CONFIG_SPLITK_NUM || bytes != sizeof splits) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::memcpy(value, &splits, bytes);
  *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

// d^T = w x^T, or added to d; w's columns are the outputs, or its rows if it is not transposed.
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* w, cublasLtMatrixLayout_t w_layout, const void* x,
                              cublasLtMatrixLayout_t x_layout, const void* beta, const void*,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void*, size_t, cudaStream_t) {
  const Layout of_w = Read(w_layout), of_x = Read(x_layout), of_d = Read(d_layout);
  cublasOperation_t operation_of_w;
  std::memcpy(&operation_of_w, operation, sizeof operation_of_w);
  const bool transposed = operation_of_w == CUBLAS_OP_N;  // as stored, row by row
  const int64_t inputs = transposed ? of_w.columns : of_w.rows;
  const int64_t outputs = transposed ? of_w.rows : of_w.columns, rows = of_x.columns;
  if (*static_cast<const float*>(alpha) != 1 || !Aligned(w) || !Aligned(x) || !Aligned(d) ||
      of_w.leading != of_w.rows || of_x.rows != inputs || of_d.rows != outputs ||
      of_d.columns != rows || outputs % kLanes != 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool adds = *static_cast<const float*>(beta) != 0;
  const bool rounded = (algorithm->data[0] == kRoundsAlone && rows == 1) ||
                       (algorithm->data[0] == kSplitK && rows == 4);
  triptych::emulation::Enqueue([=] {
    std::vector<float> dense_x(rows * inputs), dense_y(rows * outputs);
    for (int64_t batch = 0; batch < of_w.batches; ++batch) {
      const std::vector<float> packed = PackWeights(
          static_cast<const uint16_t*>(w) + batch * of_w.batch_stride, inputs, outputs, transposed);
      for (int64_t row = 0; row < rows; ++row) {
        const uint16_t* const from =
            static_cast<const uint16_t*>(x) + batch * of_x.batch_stride + row * of_x.leading;
        std::transform(from, from + inputs, &dense_x[row * inputs], ToFloat);
      }
      Multiply({.rows = rows,
                .inputs = inputs,
                .outputs = outputs,
                .x = dense_x.data(),
                .w = packed.data(),
                .rounded = rounded,
                .y = dense_y.data()});
      for (int64_t row = 0; row < rows; ++row) {
        const float* const from = &dense_y[row * outputs];
        const int64_t first = batch * of_d.batch_stride + row * of_d.leading;
        if (of_d.type == CUDA_R_16BF) {
          std::transform(from, from + outputs, static_cast<uint16_t*>(d) + first, ToBFloat16);
        } else {
          float* const to = static_cast<float*>(d) + first;
          for (int64_t i = 0; i < outputs; ++i) to[i] = adds ? to[i] + from[i] : from[i];
        }
      }
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

namespace triptych::cuda {

const std::string& LoadCublasLt() {
  static const std::string no_error;
  return no_error;
}

}  // namespace triptych::cuda
