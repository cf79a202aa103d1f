// Reference models and their expected logits, in the file that make_cuda_references writes.
// Torch-free, so that the tests do not need LibTorch.
#ifndef TRIPTYCH_TESTS_BACKEND_CUDA_REFERENCES_H_
#define TRIPTYCH_TESTS_BACKEND_CUDA_REFERENCES_H_

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/backend/cuda/cuda_weights.h"
#include "engine/model/config.h"

namespace triptych {

// The models of the file, in its order.
inline constexpr std::array kReferenceNames = {
    // Every option, with widths that are not multiples of a vector.
    "MhaLearned", "MhaEveryBias", "MhaNoPositions", "MhaRotary", "GqaLearned", "GqaRotaryOddShare",
    "GqaOneGroup", "MlaLearned", "MlaRanksBiasNorm", "MlaDecoupledKeys", "MlaNormedKeys",
    "MlaNormedKeysOfEveryHead", "MlaSquaredRelu", "MlaWideRank", "GqaEveryFactor",
    "MlaLowRankQueries", "GqaNormedOutputs", "MhaLayerNormedOutputs", "GqaWindowsAndCaps",
    // Widths that tensor-core kernels support.
    "Gqa64", "Gqa64OneGroup", "Gqa128OddShare", "Mha128", "Gqa64PartlyRotatedParallel",
    "Gqa64Windows", "Gqa128Long", "Gqa128LongWindow", "Mla512Heads32LowRank", "Mla512Heads16",
    "Mla256Premultiplied", "Mla256Long", "MlaNarrow", "Mla512NormedKeys",
    // Widths whose prompts are attended over expanded keys and values.
    "MlaExpands128", "MlaExpands64LowRank", "MlaExpands128Values64", "MlaExpandsLong"};

// The shipped models, which follow those above. Each has one sequence: a prompt, and the 64 tokens
// that the CPU backend generates greedily in bfloat16.
inline constexpr std::array kShippedNames = {"shakespeare-mha", "shakespeare-gqa",
                                             "shakespeare-mla"};

// Weights in host memory, which can be taken repeatedly.
class HeldCudaWeights final : public CudaWeightSource {
 public:
  HeldCudaWeights() = default;
  // Takes all weights of `source`.
  HeldCudaWeights(const ModelConfig& config, CudaWeightSource& source);

  CudaSharedWeights Shared() override { return shared_; }
  CudaMatrix Embedding() override { return embedding_; }
  CudaMatrix Output() override { return output_; }
  CudaLayerWeights Layer(int64_t index) override { return layers_.at(index); }

  // Visits all fields in a fixed order.
  template <typename Archive>
  void Visit(Archive& archive) {
    archive(shared_, embedding_, output_, layers_);
  }

 private:
  CudaSharedWeights shared_;
  CudaMatrix embedding_;
  CudaMatrix output_;
  std::vector<CudaLayerWeights> layers_;
};

struct ReferenceSequence {
  std::vector<int64_t> ids;
  int64_t prompt = 0;         // number of prompt ids
  std::vector<float> logits;  // [ids, vocab], computed in float64 with the weights in bfloat16

  int64_t length() const { return static_cast<int64_t>(ids.size()); }
};

struct Reference {
  std::string name;
  ModelConfig config;
  HeldCudaWeights weights;
  std::vector<ReferenceSequence> sequences;
};

// REQUIRED names: kReferenceNames, then kShippedNames. Throws std::runtime_error for other names,
// and if the file cannot be written.
void WriteReferences(const std::filesystem::path& path, std::vector<Reference>& references);

// A model of the file $TRIPTYCH_CUDA_REFERENCES (default: in the build folder). Throws
// std::runtime_error if the file cannot be read.
const Reference& FindReference(const std::string& name);

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_BACKEND_CUDA_REFERENCES_H_
