// Packing of a checkpoint's tensors into weights of the CUDA backend.
#ifndef TRIPTYCH_ENGINE_BACKEND_CUDA_PACK_PACK_CUDA_WEIGHTS_H_
#define TRIPTYCH_ENGINE_BACKEND_CUDA_PACK_PACK_CUDA_WEIGHTS_H_

#include "engine/backend/cuda/cuda_weights.h"
#include "engine/decoder/weights.h"
#include "engine/model/config.h"

namespace triptych {

// Takes tensors in host memory from `source` and rounds matrices to bfloat16. MLA's are absorbed in
// float64, in the smaller form, and then rounded. Holds the tensors of one matrix, attention layer,
// MLP or expert at a time. Throws what the source throws. REQUIRES: `source` outlives this.
class CheckpointCudaWeights final : public CudaWeightSource {
 public:
  CheckpointCudaWeights(const ModelConfig& config, WeightSource& source)
      : config_(config), source_(source) {}

  CudaSharedWeights Shared() override;
  CudaMatrix Embedding() override;
  CudaMatrix Output() override;
  CudaLayerWeights Layer(int64_t index) override;
  CudaExpert Expert(int64_t layer, int64_t index) override;

 private:
  CudaNorm TakeNorm(const std::string& name);
  CudaVector TakeVector(const std::string& name);  // of any shape
  CudaMatrix TakeMatrix(const char* name);

  const ModelConfig config_;
  WeightSource& source_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BACKEND_CUDA_PACK_PACK_CUDA_WEIGHTS_H_
