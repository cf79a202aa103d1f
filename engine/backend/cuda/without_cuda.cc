// The backend's functions in a build without CUDA.
#include "engine/backend/cuda/cuda_backend.h"
#include "engine/base/error.h"

namespace triptych {
namespace {

constexpr const char* kNoCuda = "this build has no CUDA backend";

}  // namespace

std::vector<CudaDevice> CudaDevices() { return {}; }
int64_t FreeCudaBytes(int) { throw LoadError(kNoCuda); }
std::string WhyNoCudaDevice() { return kNoCuda; }

CudaModelBytes CountCudaModelBytes(const ModelConfig&, const BackendOptions&) {
  throw LoadError(kNoCuda);
}

std::unique_ptr<ModelBackend> MakeCudaModel(const ModelConfig&, CudaWeightSource&,
                                            const BackendOptions&, int,
                                            const std::function<void(int64_t)>&) {
  throw LoadError(kNoCuda);
}

CudaLimits MeasureCudaLimits(int) { throw LoadError(kNoCuda); }

}  // namespace triptych
