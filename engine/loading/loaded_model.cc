#include "engine/loading/loaded_model.h"

#include <torch/cuda.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend/cpu/cost_model.h"
#include "engine/backend/cpu/pack_weights.h"
#include "engine/backend/cpu/step_cost.h"
#include "engine/backend/cuda/cuda_backend.h"
#include "engine/backend/cuda/pack/pack_cuda_weights.h"
#include "engine/backend/tensors/tensor_model.h"
#include "engine/base/error.h"
#include "engine/base/quoted.h"
#include "engine/checkpoint/config/generation_config.h"
#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/decoder/compute_threads.h"
#include "engine/decoder/conversion_rules.h"
#include "engine/decoder/converted_source.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/weights.h"
#include "engine/model/validate_config.h"

namespace triptych {
namespace {

// The backend and the device that serve a model.
struct Placement {
  enum class Backend { kCpu, kCuda, kTensors };
  Backend backend = Backend::kCpu;
  int gpu = 0;  // CUDA's device number; unused by kCpu
};

// The number in "cuda:N"; 0 for "cuda".
std::optional<int> GpuNumber(const std::string& name) {
  if (name == "cuda") return 0;
  if (!name.starts_with("cuda:")) return std::nullopt;
  const std::string digits = name.substr(5);
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0) {
    return std::nullopt;
  }
  return number;
}

// Throws std::invalid_argument as CheckDevice does. REQUIRES: no integer formats on a GPU.
Placement Place(const std::string& name, const WeightFormats& weights, CacheFormat cache) {
  if (name == "cpu") return {};
  const std::vector<CudaDevice> gpus = CudaDevices();
  const auto with_torch = static_cast<int>(torch::cuda::device_count());
  const int count = std::max(static_cast<int>(gpus.size()), with_torch);
  const std::optional<int> number = GpuNumber(name);
  if (!number || *number >= count) {
    std::string allowed = "cpu";
    for (int i = 0; i < count; ++i) allowed += ", cuda:" + std::to_string(i);
    throw std::invalid_argument(name + " is not available" +
                                (number && count == 0 ? " (" + WhyNoCudaDevice() + ")" : "") +
                                "; allowed: " + allowed);
  }
  const bool narrow =
      weights == WeightFormats(WeightFormat::kBFloat16) && cache == CacheFormat::kBFloat16;
  if (narrow && *number < std::ssize(gpus)) {
    return {.backend = Placement::Backend::kCuda, .gpu = *number};
  }
  if (*number < with_torch) return {.backend = Placement::Backend::kTensors, .gpu = *number};
  throw std::invalid_argument(
      name + " does not serve float32, which needs a LibTorch that has CUDA; allowed: bfloat16");
}

// Constructs the backend of a placement.
std::unique_ptr<ModelBackend> MakeServingModel(const ModelConfig& config, WeightSource& source,
                                               const WeightFormats& formats,
                                               const Placement& placement,
                                               const BackendOptions& options,
                                               std::shared_ptr<kernels::KernelContext> context,
                                               const std::function<void(int64_t)>& on_layer) {
  switch (placement.backend) {
    case Placement::Backend::kCpu: {
      cpu::CpuWeights weights =
          cpu::PackWeights(config, source, formats, options.expand_from, context->pool, on_layer);
      return std::make_unique<cpu::CpuModel>(config, std::move(weights), options,
                                             std::move(context));
    }
    case Placement::Backend::kCuda: {
      CheckpointCudaWeights weights(config, source);
      return MakeCudaModel(config, weights, options, placement.gpu, on_layer);
    }
    case Placement::Backend::kTensors:
      break;
  }
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(placement.gpu));
  Weights weights;
  for (const std::string& prefix : PartPrefixes(config)) {
    for (const auto& [name, tensor] : source.Take(prefix)) {
      weights.emplace(name, tensor.to(device));
    }
    if (const auto layer = LayerOf(prefix); layer && on_layer) on_layer(*layer + 1);
  }
  return std::make_unique<TensorModel>(config, weights, DefaultComputeType(TensorsFor(formats)),
                                       options);
}

// On a GPU the default is bfloat16.
WeightFormats ServedFormats(const ModelConfig& stored, const LoadOptions& options) {
  WeightFormats formats = options.device == "cpu" ? StoredFormats(stored) : WeightFormat::kBFloat16;
  formats = options.weights.Over(formats);
  if (stored.experts.n_routed_experts == 0) formats.experts = formats.layers;
  return formats;
}

// Bytes of weights that a step of one token reads.
int64_t ReadBytesPerToken(const ModelConfig& config, const WeightFormats& formats,
                          const Placement& placement) {
  const cpu::StepCost cost = cpu::CountStep(config, formats, std::nullopt);
  switch (placement.backend) {
    case Placement::Backend::kCpu:
      return std::llround(cpu::ReadBytes(config, cost, 1));
    case Placement::Backend::kCuda:
    case Placement::Backend::kTensors:
      break;
  }
  // Matrices are not padded on a GPU: two FLOP (a multiply-add) for each weight.
  return WeightBytes(formats.layers, 1, cost.product_flops / 2);
}

CacheFormat ServedCacheFormat(const WeightFormats& formats, const LoadOptions& options) {
  return options.cache_format.value_or(DefaultCacheFormat(formats.layers));
}

// The backend's largest step is the engine's largest batch.
BackendOptions ServedBackend(CacheFormat cache, const LoadOptions& options) {
  BackendOptions backend = options.backend;
  backend.cache_format = cache;
  backend.max_step_tokens = options.engine.max_batch_tokens;
  return backend;
}

// The format that CheckpointReader converts tensors to; absent: the stored one. Results of a
// conversion or of MLA's reduction are rounded once, at their end; tensors packed as they were read
// are rounded by packing.
std::optional<TensorFormat> ReadAs(const LoadOptions& options, const WeightFormats& served) {
  if (options.conversion) return TensorFormat::kFloat32;
  const TensorFormat format = TensorsFor(served);
  const bool packed_as_read =
      options.checkpoint.config.attention != AttentionKind::kMla && options.device == "cpu";
  if (format == TensorFormat::kFloat32 && packed_as_read) return std::nullopt;
  return format;
}

serving::RequestDefaults DefaultsOf(const checkpoint::GenerationConfig& config) {
  serving::RequestDefaults defaults;
  serving::SamplingParams& sampling = defaults.sampling;
  sampling.temperature = config.temperature.value_or(sampling.temperature);
  sampling.top_k = config.top_k.value_or(sampling.top_k);
  sampling.top_p = config.top_p.value_or(sampling.top_p);
  sampling.min_p = config.min_p.value_or(sampling.min_p);
  sampling.repetition_penalty = config.repetition_penalty.value_or(sampling.repetition_penalty);
  defaults.max_new_tokens = config.max_new_tokens;
  return defaults;
}

// Throws LoadError unless every token of the models has the same text.
void CheckSameTokens(const Tokenizer& tokenizer, const LoadOptions& options) {
  const LoadedModel& draft = *options.draft_model;
  const Tokenizer& other = *draft.tokenizer;
  if (other.vocab_size() != tokenizer.vocab_size()) {
    throw LoadError("draft-model " + draft.name + ": its tokenizer has " +
                    std::to_string(other.vocab_size()) + " tokens; allowed: " +
                    std::to_string(tokenizer.vocab_size()) + ", as that of " + options.name);
  }
  const auto text = [](const Tokenizer& of, int32_t token) {
    std::string bytes = of.Decode(token);
    return bytes.empty() ? std::string(of.SpecialText(token)) : bytes;
  };
  for (int32_t token = 0; token < tokenizer.vocab_size(); ++token) {
    const std::string wanted = text(tokenizer, token), found = text(other, token);
    if (found == wanted) continue;
    throw LoadError("draft-model " + draft.name + ": its token " + std::to_string(token) + " is " +
                    Quoted(found) + "; allowed: " + Quoted(wanted) + ", as of " + options.name);
  }
}

// The draft model with as many blocks as the model that it drafts for.
std::unique_ptr<ModelBackend> MakeDraftModel(const LoadedModel& draft, const BackendInfo& info) {
  std::unique_ptr<ModelBackend> model = draft.engine->model().WithOwnCache(info.blocks);
  if (model == nullptr || !info.verifies_drafts) {
    throw LoadError("draft-model " + draft.name + ": a model is on a GPU; allowed: cpu");
  }
  return model;
}

// Leaves a part of the cache's bytes to the draft model, so that both have as many blocks.
void ShareCache(const ModelConfig& config, const LoadedModel& draft, BackendOptions& backend) {
  const CacheGeometry own =
      MakeCacheGeometry(config, backend.cache_format, backend.block_positions);
  const CacheGeometry& drafts = draft.engine->model().info().geometry;
  for (const CacheGeometry* geometry : {&own, &drafts}) {
    if (geometry->window == 0) continue;
    throw LoadError("draft-model " + draft.name + ": one of the models has a sliding window (" +
                    std::to_string(geometry->window) + " positions); allowed: models without");
  }
  CacheGeometry both = own;
  both.Add(drafts);
  backend.kv_cache_bytes = BlocksIn(both, backend.kv_cache_bytes) * own.BlockBytes();
}

LoadedModel Load(const LoadOptions& options, std::shared_ptr<kernels::KernelContext> context) {
  const ModelConfig& stored = options.checkpoint.config;
  const std::string path = options.checkpoint.path.string();
  LoadedModel model;
  std::shared_ptr<const Tokenizer> tokenizer =
      checkpoint::LoadTokenizer(options.checkpoint, &model.tokenizer_notes);
  checkpoint::CheckVocabulary(*tokenizer, stored, path);
  if (options.draft_model != nullptr) CheckSameTokens(*tokenizer, options);
  checkpoint::GenerationConfig generation =
      checkpoint::ReadGenerationConfig(options.checkpoint.path);

  model.name = options.name;
  model.weight_formats = ServedFormats(stored, options);
  model.cache_format = ServedCacheFormat(model.weight_formats, options);
  const auto& [layers, embeddings, experts] = model.weight_formats;
  CheckDevice(options.device, {layers, embeddings, experts}, model.cache_format);
  const Placement placement = Place(options.device, model.weight_formats, model.cache_format);
  const TensorFormat tensors = TensorsFor(model.weight_formats);
  auto reader =
      std::make_unique<CheckpointReader>(options.checkpoint, ReadAs(options, model.weight_formats));
  std::unique_ptr<WeightSource> source;
  if (options.conversion) {
    SetComputeThreads(context->pool.threads());  // conversions compute on this thread
    auto converted =
        std::make_unique<ConvertedSource>(std::move(reader), *options.conversion, tensors, path);
    model.converted_from = stored.attention;
    model.config = converted->config();
    source = std::move(converted);
  } else {
    model.config = reader->config();
    source = std::move(reader);
  }
  model.parameters = ParameterCount(model.config);  // with all learned positions
  model.active_parameters = ActiveParameterCount(model.config);
  model.parameter_bytes = ParameterBytes(model.config, model.weight_formats);
  model.read_bytes_per_token = ReadBytesPerToken(model.config, model.weight_formats, placement);
  model.latent_forms = ReducedForms(model.config);
  model.config.max_position_embeddings = ServedPositions(options);
  model.tokenizer = std::move(tokenizer);
  model.defaults = DefaultsOf(generation);
  model.not_applied = std::move(generation.not_applied);

  BackendOptions backend = ServedBackend(model.cache_format, options);
  if (options.draft_model != nullptr) ShareCache(model.config, *options.draft_model, backend);
  const auto on_layer = [&](int64_t loaded) {
    if (options.on_layer) options.on_layer(loaded, model.config.num_hidden_layers);
  };
  std::unique_ptr<ModelBackend> serving = MakeServingModel(
      model.config, *source, model.weight_formats, placement, backend, context, on_layer);
  std::unique_ptr<ModelBackend> draft;
  if (options.draft_model != nullptr) {
    model.draft_model = options.draft_model->name;
    draft = MakeDraftModel(*options.draft_model, serving->info());
  }
  model.engine = std::make_unique<serving::Engine>(std::move(serving), model.tokenizer,
                                                   options.engine, serving::EngineClock::now,
                                                   std::move(context), std::move(draft));
  model.info = model.engine->info();
  return model;
}

}  // namespace

int64_t ServedPositions(const LoadOptions& options) {
  const ModelConfig& stored = options.checkpoint.config;
  ModelConfig served = options.conversion ? ConvertedShape(stored, *options.conversion) : stored;
  int64_t positions = served.max_position_embeddings;
  if (options.max_positions) {
    if (*options.max_positions > positions) {
      throw LoadError(options.checkpoint.path.string() + ": max-model-len is " +
                      std::to_string(*options.max_positions) + "; allowed: 2 to " +
                      std::to_string(positions) + ", the model's context (" +
                      options.checkpoint.context_origin + ")");
    }
    positions = *options.max_positions;
  }
  const int64_t width = stored.RotaryTableDim();
  if (width == 0 || positions <= config_limits::kPositionTable / width) return positions;
  const CacheFormat cache = ServedCacheFormat(ServedFormats(stored, options), options);
  served.max_position_embeddings = positions;
  const BackendInfo info =
      MakeInfo(served, ServedBackend(cache, options), /*expand_from=*/std::nullopt);
  const int64_t as_large = options.backend.kv_cache_bytes / (width * int64_t{sizeof(float)});
  const int64_t held = std::min(info.pool_positions(), as_large);
  return std::min(positions, std::max(config_limits::kPositionTable / width, held));
}

void CheckDevice(const std::string& name, const AskedWeightFormats& weights,
                 std::optional<CacheFormat> cache) {
  const auto refuse = [&](std::string_view what) {
    throw std::invalid_argument(name + " does not serve " + std::string(what) + "; allowed: cpu");
  };
  for (const std::optional<WeightFormat>& format :
       {weights.layers, weights.embeddings, weights.experts}) {
    if (name != "cpu" && format && IsInteger(*format)) {
      refuse(std::string(Name(*format)) + " weights");
    }
  }
  if (name != "cpu" && cache && IsInteger(*cache)) {
    refuse("a cache in " + std::string(Name(*cache)));
  }
  const WeightFormats formats = weights.Over(WeightFormat::kBFloat16);
  Place(name, formats, cache.value_or(DefaultCacheFormat(formats.layers)));
}

std::optional<int64_t> FreeDeviceBytes(const std::string& name) {
  const std::optional<int> number = GpuNumber(name);
  if (!number || *number >= std::ssize(CudaDevices())) return std::nullopt;
  return FreeCudaBytes(*number);
}

LoadedBytes CountLoadedBytes(const LoadOptions& options) {
  const ModelConfig& stored = options.checkpoint.config;
  ModelConfig config = stored;
  if (options.conversion) {
    CheckConversion({.config = stored, .weights = {}}, *options.conversion,
                    options.checkpoint.path.string());
    config = ConvertedShape(stored, *options.conversion);
  }
  config.max_position_embeddings = ServedPositions(options);
  const WeightFormats formats = ServedFormats(stored, options);
  const CacheFormat cache = ServedCacheFormat(formats, options);
  const int64_t bytes_per_position =
      MakeCacheGeometry(config, cache, options.backend.block_positions).BytesPerPosition();
  switch (Place(options.device, formats, cache).backend) {
    case Placement::Backend::kCpu:
      break;
    case Placement::Backend::kCuda: {
      const CudaModelBytes bytes = CountCudaModelBytes(config, ServedBackend(cache, options));
      return {.weights = bytes.weights,
              .workspace = bytes.workspace,
              .cache_bytes_per_position = bytes_per_position};
    }
    case Placement::Backend::kTensors:
      return {.weights = ParameterBytes(config, formats),
              .cache_bytes_per_position = bytes_per_position};
  }
  int64_t loading = cpu::UnpackedBytes(config, formats,
                                       ReadAs(options, formats).value_or(TensorFormat::kFloat32));
  if (options.conversion) loading = std::max(loading, ConversionBytes(stored));
  std::optional<int64_t> expand_from;
  if (config.attention == AttentionKind::kMla) {
    expand_from = cpu::ExpandFrom(config, options.backend.expand_from);
  }
  return {.weights = cpu::CountStep(config, formats, expand_from).weight_bytes,
          .prompts = expand_from ? MostScratchBytes(config) : 0,
          .workspace = 0,
          .loading = loading,
          .cache_bytes_per_position = bytes_per_position};
}

LoadedModel LoadModel(const LoadOptions& options, std::shared_ptr<kernels::KernelContext> context) {
  try {
    return Load(options, std::move(context));
  } catch (const c10::Error& e) {  // its what() ends in a long backtrace
    throw LoadError(options.checkpoint.path.string() + ": " + e.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    throw LoadError(options.checkpoint.path.string() +
                    ": not enough memory for the weights and a KV cache of " +
                    std::to_string(options.backend.kv_cache_bytes) + " bytes");
  }
}

}  // namespace triptych
