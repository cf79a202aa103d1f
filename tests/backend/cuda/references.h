// Models with random weights and the logits that they must have, as make_cuda_references writes
// them to a file. Torch-free.
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
    // Every option, at widths that are no multiple of a vector.
    "MhaLearned", "MhaEveryBias", "MhaNoPositions", "MhaRotary", "GqaLearned", "GqaRotaryOddShare",
    "GqaOneGroup", "MlaLearned", "MlaRanksBiasNorm", "MlaDecoupledKeys", "MlaWideRank",
    "GqaEveryFactor", "MlaLowRankQueries",
    // Widths that kernels on tensor cores take.
    "Gqa64", "Gqa64OneGroup", "Gqa128OddShare", "Mha128", "Gqa128Long", "Mla512Heads32LowRank",
    "Mla512Heads16", "Mla256Premultiplied", "Mla256Long", "MlaNarrow"};

// The shipped models, which follow those above. Each has one sequence: a prompt, and the 64 tokens
// that the CPU backend generates greedily in bfloat16.
inline constexpr std::array kShippedNames = {"shakespeare-mha", "shakespeare-gqa",
                                             "shakespeare-mla"};

// Weights in host memory, handed out as often as asked for.
class HeldCudaWeights final : public CudaWeightSource {
 public:
  HeldCudaWeights() = default;
  // Takes all that `source` hands out.
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
  int64_t prompt = 0;         // how many of the first ids are the prompt's
  std::vector<float> logits;  // [ids, vocab], computed in float64 with the weights in bfloat16

  int64_t length() const { return static_cast<int64_t>(ids.size()); }
};

struct Reference {
  std::string name;
  ModelConfig config;
  HeldCudaWeights weights;
  std::vector<ReferenceSequence> sequences;
};

// Throws std::runtime_error if the file cannot be written, or the names are not kReferenceNames,
// then kShippedNames.
void WriteReferences(const std::filesystem::path& path, std::vector<Reference>& references);

// A model of the file at $TRIPTYCH_CUDA_REFERENCES, or else in the build folder. Throws
// std::runtime_error if the file cannot be read.
const Reference& FindReference(const std::string& name);

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_BACKEND_CUDA_REFERENCES_H_
