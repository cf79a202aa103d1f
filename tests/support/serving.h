// Model backends for tests, on kernels or on LibTorch's operators.
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

// Options of an engine and its model.
struct EngineSetup : BackendOptions, serving::EngineOptions {};

// A backend on kernels, with weights in a format.
std::unique_ptr<ModelBackend> MakeServingModel(const ModelConfig& config, const Weights& weights,
                                               const BackendOptions& options, WeightFormat format,
                                               int threads = 2);
// A backend on LibTorch's operators. Weights are cast to `compute`.
std::unique_ptr<ModelBackend> MakeTensorModel(const ModelConfig& config, const Weights& weights,
                                              const BackendOptions& options, ComputeType compute);
// A backend on kernels for float32 and bfloat16 on the CPU; otherwise (float64, or another device)
// on LibTorch's operators.
std::unique_ptr<ModelBackend> MakeServingModel(const ModelConfig& config, const Weights& weights,
                                               const BackendOptions& options,
                                               ComputeType compute = ComputeType::kFloat32,
                                               int threads = 2);

// An engine with a model of MakeServingModel, and with TestTokenizer().
std::unique_ptr<serving::Engine> MakeEngine(const ModelConfig& config, const Weights& weights,
                                            const EngineSetup& setup, WeightFormat format,
                                            int threads = 2);
std::unique_ptr<serving::Engine> MakeEngine(const ModelConfig& config, const Weights& weights,
                                            const EngineSetup& setup,
                                            ComputeType compute = ComputeType::kFloat32,
                                            int threads = 2);

// Backend, precision and cache format of a StepRunner.
struct Served {
  const ModelConfig& config;
  const Weights& weights;
  ComputeType compute = ComputeType::kFloat32;       // unless weight_format is set
  std::optional<WeightFormat> weight_format = {};    // on kernels, instead of `compute`
  bool on_tensors = false;                           // LibTorch's operators, for any `compute`
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

// Runs steps of sequences over scattered blocks of a cache. Unwritten rows are NaN.
class StepRunner {
 public:
  // `prompt`: length of each sequence's prompt.
  StepRunner(const Served& served, int64_t sequences, int64_t prompt = 0);

  // Logits of every new token [tokens, vocab]: float32, or float64 if `compute` is float64.
  at::Tensor Step(const std::vector<NewTokens>& all);
  // Logits of the tokens `logit_rows` [rows, vocab].
  at::Tensor Step(const std::vector<NewTokens>& all, const std::vector<int64_t>& logit_rows);

  // Makes the next step compute the sequence's last `count` tokens again.
  void MoveBack(int64_t sequence, int64_t count) { lengths_[sequence] -= count; }

  // A view of a layer's cache row of a position: [row_elements]. Writing changes the cache.
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
  LayerGroups groups_;
  std::vector<std::vector<int32_t>> blocks_;  // by sequence, then by block and group
  std::vector<int64_t> lengths_;
};

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_SERVING_H_
