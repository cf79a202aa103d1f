// A checkpoint loaded and ready to serve. Torch-free.
#ifndef TRIPTYCH_ENGINE_LOADING_LOADED_MODEL_H_
#define TRIPTYCH_ENGINE_LOADING_LOADED_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/backend/model_backend.h"
#include "engine/base/formats.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/kernels/context.h"
#include "engine/model/config.h"
#include "engine/model/conversion_spec.h"
#include "engine/model/latent_shape.h"
#include "engine/serving/engine.h"
#include "engine/serving/request.h"
#include "engine/text/tokenizer.h"

namespace triptych {

struct LoadedModel {
  std::string name;
  ModelConfig config;                           // as it is served
  std::optional<AttentionKind> converted_from;  // the checkpoint's, if it was converted at load
  WeightFormats weight_formats;
  CacheFormat cache_format = CacheFormat::kFloat32;
  int64_t parameters = 0;
  int64_t parameter_bytes = 0;            // of the checkpoint's tensors in weight_formats
  std::vector<ReducedForm> latent_forms;  // of each layer; empty unless MLA
  BackendInfo info;                       // the engine's: for any thread to read
  std::shared_ptr<const Tokenizer> tokenizer;
  serving::RequestDefaults defaults;  // the checkpoint's, which the engine does not apply by itself
  // What else the checkpoint says of how its text is generated (GenerationConfig::not_applied).
  std::string not_applied;
  std::unique_ptr<serving::Engine> engine;
};

struct LoadOptions {
  std::string name;
  checkpoint::OpenedCheckpoint checkpoint;
  // The checkpoint's own if absent; on a GPU bfloat16.
  std::optional<WeightFormat> weight_format = {};
  // Of the embedding and the output matrix: the other weights' if absent, or the checkpoint's own
  // where those are.
  std::optional<WeightFormat> embedding_format = {};
  std::optional<CacheFormat> cache_format = {};  // the weights' if absent
  BackendOptions backend = {};                   // cache_format there is ignored
  serving::EngineOptions engine = {};
  std::optional<ConversionSpec> conversion = {};  // as the checkpoint is, if absent
  std::string device = "cpu";                     // "cpu", "cuda" or "cuda:N"
  // Told how many layers are loaded, after each, and how many there are.
  std::function<void(int64_t loaded, int64_t layers)> on_layer = {};
};

// The memory that a model takes on its device, known before any tensor is read.
struct LoadedBytes {
  int64_t weights = 0;    // as they are packed
  int64_t prompts = 0;    // on the CPU: of expanded keys and values of prompts under way, at most
  int64_t workspace = 0;  // on a GPU: what steps compute in
  // On the CPU: about what loading takes besides the weights, free again before the cache is taken.
  int64_t loading = 0;
};

// Throws LoadError if the checkpoint cannot be converted as the options say, and
// std::invalid_argument as CheckDevice does.
LoadedBytes CountLoadedBytes(const LoadOptions& options);

// Throws std::invalid_argument with one clear line unless `name` is "cpu", "cuda" or "cuda:N", that
// device is there, and it serves the given formats of weights, embeddings and cache. A format that
// is absent is the device's default.
void CheckDevice(const std::string& name, std::optional<WeightFormat> weights,
                 std::optional<WeightFormat> embeddings, std::optional<CacheFormat> cache);

// "cuda:0" if there is a GPU that serves these formats, else "cpu".
std::string ChooseDevice(std::optional<WeightFormat> weights,
                         std::optional<WeightFormat> embeddings, std::optional<CacheFormat> cache);

// Bytes of memory that are free on a GPU by the name of CheckDevice. Absent for the CPU. Throws
// LoadError if the GPU fails.
std::optional<int64_t> FreeDeviceBytes(const std::string& name);

// Loads a checkpoint, converts it if asked to, and chooses the backend that serves it: backend/cpu
// on the CPU; on a GPU backend/cuda for weights and a cache in bfloat16, otherwise LibTorch's
// operations if LibTorch has CUDA. `context` is what kernels on the CPU compute with; the models of
// one engine loop share it. Throws LoadError, also for what LibTorch throws and where there is too
// little memory; std::invalid_argument as CheckDevice does.
LoadedModel LoadModel(const LoadOptions& options, std::shared_ptr<kernels::KernelContext> context);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_LOADING_LOADED_MODEL_H_
