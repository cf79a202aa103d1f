#include "engine/hosting/hosted_model.h"

#include <torch/cuda.h>

#include <algorithm>
#include <functional>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "engine/backend/cpu/cost_model.h"
#include "engine/backend/cpu/pack_weights.h"
#include "engine/backend/cpu/step_cost.h"
#include "engine/backend/tensors/tensor_model.h"
#include "engine/base/error.h"
#include "engine/checkpoint/generation_config.h"
#include "engine/checkpoint/load_tokenizer.h"
#include "engine/decoder/compute_threads.h"
#include "engine/decoder/conversion.h"
#include "engine/decoder/weights.h"

namespace triptych {
namespace {

at::Device ParseDevice(const std::string& name) {
  if (name == "cpu") return at::kCPU;
  if (name == "cuda" && torch::cuda::is_available()) return at::Device(at::kCUDA, 0);
  std::string allowed = "cpu";
  for (size_t i = 0; i < torch::cuda::device_count(); ++i) {
    const std::string gpu = "cuda:" + std::to_string(i);
    if (name == gpu) return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(i));
    allowed += ", " + gpu;
  }
  throw std::invalid_argument(name + " is not available in this LibTorch; allowed: " + allowed);
}

// The one place that chooses what a model is served on.
std::unique_ptr<ServingModel> MakeServingModel(const ModelConfig& config, WeightSource& source,
                                               const WeightFormats& formats, at::Device device,
                                               const BackendOptions& options,
                                               std::shared_ptr<KernelContext> context,
                                               const std::function<void(int64_t)>& on_layer) {
  if (device.is_cpu()) {
    CpuWeights weights =
        PackWeights(config, source, formats, options.expand_from, context->pool, on_layer);
    return std::make_unique<CpuModel>(config, std::move(weights), options, std::move(context));
  }
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

WeightFormats ServedFormats(const ModelConfig& stored, const HostOptions& options) {
  WeightFormats formats = options.weight_format ? *options.weight_format : StoredFormats(stored);
  if (options.embedding_format) formats.embeddings = *options.embedding_format;
  return formats;
}

// What weights become when they are read, as CheckpointReader has it. What a conversion or MLA's
// reduction computes is rounded once, at its end; what is packed as it was read, when it is packed.
std::optional<TensorFormat> ReadAs(const HostOptions& options, const WeightFormats& served) {
  if (options.conversion) return TensorFormat::kFloat32;
  const TensorFormat format = TensorsFor(served);
  const bool packed_as_read = options.checkpoint.config.attention != AttentionKind::kMla &&
                              ParseDevice(options.device).is_cpu();
  if (format == TensorFormat::kFloat32 && packed_as_read) return std::nullopt;
  return format;
}

RequestDefaults DefaultsOf(const GenerationConfig& config) {
  RequestDefaults defaults;
  SamplingParams& sampling = defaults.sampling;
  sampling.temperature = config.temperature.value_or(sampling.temperature);
  sampling.top_k = config.top_k.value_or(sampling.top_k);
  sampling.top_p = config.top_p.value_or(sampling.top_p);
  sampling.min_p = config.min_p.value_or(sampling.min_p);
  sampling.repetition_penalty = config.repetition_penalty.value_or(sampling.repetition_penalty);
  defaults.max_new_tokens = config.max_new_tokens;
  return defaults;
}

HostedModel Load(const HostOptions& options, std::shared_ptr<KernelContext> context) {
  const ModelConfig& stored = options.checkpoint.config;
  const std::string path = options.checkpoint.path.string();
  std::shared_ptr<const Tokenizer> tokenizer = LoadTokenizer(options.checkpoint);
  CheckVocabulary(*tokenizer, stored, path);
  GenerationConfig generation = ReadGenerationConfig(options.checkpoint.path);

  HostedModel model;
  model.name = options.name;
  model.weight_formats = ServedFormats(stored, options);
  model.cache_format =
      options.cache_format.value_or(DefaultCacheFormat(model.weight_formats.layers));
  CheckDevice(options.device, model.weight_formats.layers, model.weight_formats.embeddings,
              model.cache_format);
  const TensorFormat tensors = TensorsFor(model.weight_formats);
  auto reader =
      std::make_unique<CheckpointReader>(options.checkpoint, ReadAs(options, model.weight_formats));
  std::unique_ptr<WeightSource> source;
  if (options.conversion) {
    SetComputeThreads(context->pool.threads());  // of this thread: conversions compute
    auto converted =
        std::make_unique<ConvertedSource>(std::move(reader), *options.conversion, tensors, path);
    model.converted_from = stored.attention;
    model.config = converted->config();
    source = std::move(converted);
  } else {
    model.config = reader->config();
    source = std::move(reader);
  }
  model.parameters = ParameterCount(model.config);
  model.parameter_bytes = ParameterBytes(model.config, model.weight_formats);
  model.latent_forms = ReducedForms(model.config);
  model.tokenizer = std::move(tokenizer);
  model.defaults = DefaultsOf(generation);
  model.not_applied = std::move(generation.not_applied);

  BackendOptions backend = options.backend;
  backend.cache_format = model.cache_format;
  const auto on_layer = [&](int64_t loaded) {
    if (options.on_layer) options.on_layer(loaded, model.config.num_hidden_layers);
  };
  std::unique_ptr<ServingModel> serving =
      MakeServingModel(model.config, *source, model.weight_formats, ParseDevice(options.device),
                       backend, context, on_layer);
  model.info = serving->info();
  model.engine = std::make_unique<Engine>(std::move(serving), model.tokenizer, options.engine,
                                          EngineClock::now, std::move(context));
  return model;
}

}  // namespace

void CheckDevice(const std::string& name, std::optional<WeightFormat> weights,
                 std::optional<WeightFormat> embeddings, std::optional<CacheFormat> cache) {
  const auto refuse = [&](std::string_view what) {
    throw std::invalid_argument(name + " does not serve " + std::string(what) + "; allowed: cpu");
  };
  for (const std::optional<WeightFormat>& format : {weights, embeddings}) {
    if (name != "cpu" && format && IsInteger(*format)) {
      refuse(std::string(Name(*format)) + " weights");
    }
  }
  if (name != "cpu" && cache == CacheFormat::kInt8) refuse("a cache in int8");
  ParseDevice(name);
}

HostedBytes CountHostedBytes(const HostOptions& options) {
  const ModelConfig& stored = options.checkpoint.config;
  ModelConfig config = stored;
  if (options.conversion) {
    CheckConversion({.config = stored, .weights = {}}, *options.conversion,
                    options.checkpoint.path.string());
    config = ConvertedShape(stored, *options.conversion);
  }
  const WeightFormats formats = ServedFormats(stored, options);
  int64_t loading =
      UnpackedBytes(config, formats, ReadAs(options, formats).value_or(TensorFormat::kFloat32));
  if (options.conversion) loading = std::max(loading, ConversionBytes(stored));
  std::optional<int64_t> expand_from;
  if (config.attention == AttentionKind::kMla) {
    expand_from = ExpandFrom(config, options.backend.expand_from);
  }
  return {.weights = CountStep(config, formats, expand_from).weight_bytes,
          .prompts = expand_from ? MostScratchBytes(config) : 0,
          .loading = loading};
}

HostedModel LoadHostedModel(const HostOptions& options, std::shared_ptr<KernelContext> context) {
  try {
    return Load(options, std::move(context));
  } catch (const c10::Error& e) {  // whose what() is pages of backtrace
    throw LoadError(options.checkpoint.path.string() + ": " + e.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    throw LoadError(options.checkpoint.path.string() +
                    ": the memory does not suffice for the weights and a key/value cache of " +
                    std::to_string(options.backend.kv_cache_bytes) + " bytes");
  }
}

}  // namespace triptych
