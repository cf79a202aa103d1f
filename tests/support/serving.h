// Models ready to serve, on kernels or on LibTorch's operations.
#ifndef TRIPTYCH_TESTS_SUPPORT_SERVING_H_
#define TRIPTYCH_TESTS_SUPPORT_SERVING_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/backend/model_backend.h"
#include "engine/decoder/weights.h"
#include "engine/model/config.h"
#include "engine/serving/engine.h"

namespace triptych {

// What an engine and its model are made with.
struct EngineSetup : BackendOptions, serving::EngineOptions {};

// Serves on kernels, as a checkpoint is served in that format.
std::unique_ptr<ModelBackend> MakeServingModel(const ModelConfig& config, const Weights& weights,
                                               const BackendOptions& options, WeightFormat format,
                                               int threads = 2);
// Serves on LibTorch's operations. Weights are cast to `compute`.
std::unique_ptr<ModelBackend> MakeTensorModel(const ModelConfig& config, const Weights& weights,
                                              const BackendOptions& options, ComputeType compute);
// Serves on kernels in float32 and bfloat16 on the CPU, and otherwise, in float64 or on another
// device, as MakeTensorModel does.
std::unique_ptr<ModelBackend> MakeServingModel(const ModelConfig& config, const Weights& weights,
                                               const BackendOptions& options,
                                               ComputeType compute = ComputeType::kFloat32,
                                               int threads = 2);

// An engine with what MakeServingModel makes, and with TestTokenizer().
std::unique_ptr<serving::Engine> MakeEngine(const ModelConfig& config, const Weights& weights,
                                            const EngineSetup& setup, WeightFormat format,
                                            int threads = 2);
std::unique_ptr<serving::Engine> MakeEngine(const ModelConfig& config, const Weights& weights,
                                            const EngineSetup& setup,
                                            ComputeType compute = ComputeType::kFloat32,
                                            int threads = 2);

// How a model is served by a StepRunner.
struct Served {
  const ModelConfig& config;
  const Weights& weights;
  ComputeType compute = ComputeType::kFloat32;       // unless weight_format says
  std::optional<WeightFormat> weight_format = {};    // on kernels, instead of `compute`
  bool on_tensors = false;                           // LibTorch's operations, whatever `compute` is
  CacheFormat cache_format = CacheFormat::kFloat32;  // in float64 the cache is float64 too
  int64_t block_positions = 16;
  std::optional<int64_t> expand_from = kNeverExpand;
  int threads = 2;
};

// New tokens of one sequence.
struct NewTokens {
  int64_t sequence;
  std::vector<int64_t> ids;
  PromptScratch* scratch = nullptr;
};

// Steps sequences over a cache of scattered blocks that is NaN where nothing was written.
class StepRunner {
 public:
  // `prompt`: how many of each sequence's first tokens are its prompt.
  StepRunner(const Served& served, int64_t sequences, int64_t prompt = 0);

  // Logits of every new token [tokens, vocab]: float32, or float64 if that is computed in.
  at::Tensor Step(const std::vector<NewTokens>& all);
  // Logits of the tokens that are wanted [rows, vocab].
  at::Tensor Step(const std::vector<NewTokens>& all, const std::vector<int64_t>& logit_rows);

  // The next step has the sequence's last `count` tokens again.
  void MoveBack(int64_t sequence, int64_t count) { lengths_[sequence] -= count; }

  // What a layer's cache holds for a position, to look at and to change: [row_elements].
  at::Tensor CacheRow(int64_t layer, int64_t sequence, int64_t position);

  ModelBackend& model() { return *model_; }

 private:
  // [blocks, row_elements, block_positions]
  at::Tensor Cache(int64_t layer);

  const ModelConfig config_;
  const ComputeType compute_;
  const int64_t block_positions_;
  const int64_t prompt_;
  std::unique_ptr<ModelBackend> model_;
  std::vector<std::vector<int32_t>> blocks_;  // of each sequence
  std::vector<int64_t> lengths_;
};

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_SERVING_H_
