// A checkpoint loaded and ready to serve.
#ifndef TRIPTYCH_ENGINE_LOADING_LOADED_MODEL_H_
#define TRIPTYCH_ENGINE_LOADING_LOADED_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/backend/model_backend.h"
#include "engine/base/asked_weight_formats.h"
#include "engine/base/formats.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/checkpoint/tokenizer/tokenizer_settings.h"
#include "engine/kernels/context.h"
#include "engine/model/config.h"
#include "engine/model/conversion_spec.h"
#include "engine/model/latent_shape.h"
#include "engine/serving/engine.h"
#include "engine/serving/served_model.h"

namespace triptych {

struct LoadedModel : serving::ServedModel {
  // The checkpoint's generation settings that are not applied (GenerationConfig::not_applied).
  std::string not_applied;
  checkpoint::TokenizerNotes tokenizer_notes;
  std::unique_ptr<serving::Engine> engine;
};

struct LoadOptions {
  std::string name;
  checkpoint::OpenedCheckpoint checkpoint;
  // Default: the checkpoint's own; on a GPU, bfloat16. That of experts does not matter to a model
  // without experts.
  AskedWeightFormats weights = {};
  std::optional<CacheFormat> cache_format = {};  // absent: DefaultCacheFormat(layers)
  BackendOptions backend = {};                   // its cache_format and max_step_tokens are ignored
  serving::EngineOptions engine = {};
  std::optional<ConversionSpec> conversion = {};  // absent: none
  std::optional<int64_t> max_positions = {};      // lowers the context
  std::string device = "cpu";                     // "cpu", "cuda" or "cuda:N"
  // Drafts tokens for the model; may be null. Its weights are shared. The KV cache holds its rows,
  // too: backend.kv_cache_bytes is for both.
  const LoadedModel* draft_model = nullptr;
  // Called after each layer, with the number of layers loaded so far and of all.
  std::function<void(int64_t loaded, int64_t layers)> on_layer = {};
};

// The context as served: the checkpoint's, or options.max_positions. A context whose rotary table
// would have more than config_limits::kPositionTable elements is lowered to that size. If that is
// more, it is lowered to the positions of one sequence that the cache holds, and to a table as
// large as the cache. Throws LoadError if max_positions exceeds the checkpoint's context, or if the
// cache holds no block.
int64_t ServedPositions(const LoadOptions& options);

// Memory that a model takes on its device, in bytes. Known before any tensor is read.
struct LoadedBytes {
  int64_t weights = 0;    // packed
  int64_t prompts = 0;    // on the CPU: most for expanded keys and values during prefill
  int64_t workspace = 0;  // on a GPU: scratch memory of steps
  // On the CPU: approximate peak of loading besides the weights. Freed before the cache is
  // allocated.
  int64_t loading = 0;
  int64_t cache_bytes_per_position = 0;  // CacheGeometry::BytesPerPosition
};

// Throws LoadError if the checkpoint cannot be converted as the options ask or the CUDA backend
// does not serve the model in such steps, and std::invalid_argument as CheckDevice does.
LoadedBytes CountLoadedBytes(const LoadOptions& options);

// Throws std::invalid_argument with a one-line message unless `name` is "cpu", "cuda" or "cuda:N",
// the device exists, and it serves these formats. An absent format is the device's default.
void CheckDevice(const std::string& name, const AskedWeightFormats& weights,
                 std::optional<CacheFormat> cache);

// Free memory in bytes of a GPU, named as for CheckDevice. Absent for the CPU, and for a GPU that
// CudaDevices does not list. Throws LoadError if CUDA reports an error.
std::optional<int64_t> FreeDeviceBytes(const std::string& name);

// GPU memory that a server's models leave free, in bytes: for kernel code, CUDA graphs and
// fragmentation.
inline constexpr int64_t kDeviceHeadRoom = int64_t{512} << 20;

// Loads a checkpoint, converts it if options.conversion is set, and chooses the backend: on the CPU
// backend/cpu; on a GPU backend/cuda for weights and a cache in bfloat16, otherwise backend/tensors
// if LibTorch has CUDA. `context`: threads and scratch memory of the CPU's kernels; the models of
// one engine loop share it. Throws LoadError, also for errors of LibTorch and for lack of memory,
// and std::invalid_argument as CheckDevice does.
//
// A draft model needs the same tokenizer, and neither model may have windows or be on a GPU;
// otherwise this throws LoadError.
LoadedModel LoadModel(const LoadOptions& options, std::shared_ptr<kernels::KernelContext> context);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_LOADING_LOADED_MODEL_H_
