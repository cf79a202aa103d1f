#include "engine/backend/cuda/load_cublaslt.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <string>

namespace triptych::cuda {
namespace {

struct Library {
  void* handle = nullptr;
  std::string error;
};

const Library& Loaded() {
  static const Library library = [] {
    const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
    Library loaded;
    // First on the loader's own paths, then where the toolkit was at build time.
    for (const std::string& path : {name, TRIPTYCH_CUDA_LIBRARY_DIR "/" + name}) {
      loaded.handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (loaded.handle != nullptr) break;
      if (loaded.error.empty()) loaded.error = dlerror();
    }
    if (loaded.handle != nullptr) loaded.error.clear();
    return loaded;
  }();
  return library;
}

// The library's function of the same name and type as `Function`.
template <auto Function>
decltype(Function) Find(const char* name) {
  static const auto found = reinterpret_cast<decltype(Function)>(dlsym(Loaded().handle, name));
  return found;
}

}  // namespace

const std::string& LoadCublasLt() { return Loaded().error; }

}  // namespace triptych::cuda

// The functions that matmul.cc calls, by the names and types of cublasLt.h.
#define TRIPTYCH_CALL(function, ...) \
  return triptych::cuda::Find<&(function)>(#function)(__VA_ARGS__)

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { TRIPTYCH_CALL(cublasLtCreate, handle); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { TRIPTYCH_CALL(cublasLtDestroy, handle); }
size_t cublasLtGetVersion() { TRIPTYCH_CALL(cublasLtGetVersion); }
const char* cublasLtGetStatusName(cublasStatus_t status) {
  TRIPTYCH_CALL(cublasLtGetStatusName, status);
}
cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t description, size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  TRIPTYCH_CALL(cublasLtMatmulDescInit_internal, description, size, compute, scale);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t size) {
  TRIPTYCH_CALL(cublasLtMatmulDescSetAttribute, description, attribute, value, size);
}
cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t columns,
                                                 int64_t stride) {
  TRIPTYCH_CALL(cublasLtMatrixLayoutInit_internal, layout, size, type, rows, columns, stride);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t size) {
  TRIPTYCH_CALL(cublasLtMatrixLayoutSetAttribute, layout, attribute, value, size);
}
cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                                     size_t size) {
  TRIPTYCH_CALL(cublasLtMatmulPreferenceInit_internal, preference, size);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t size) {
  TRIPTYCH_CALL(cublasLtMatmulPreferenceSetAttribute, preference, attribute, value, size);
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* returned) {
  TRIPTYCH_CALL(cublasLtMatmulAlgoGetHeuristic, handle, operation, a, b, c, d, preference,
                requested, results, returned);
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value, size_t size, size_t* written) {
  TRIPTYCH_CALL(cublasLtMatmulAlgoConfigGetAttribute, algorithm, attribute, value, size, written);
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  TRIPTYCH_CALL(cublasLtMatmul, handle, operation, alpha, a, a_layout, b, b_layout, beta, c,
                c_layout, d, d_layout, algorithm, workspace, workspace_bytes, stream);
}

}  // extern "C"
