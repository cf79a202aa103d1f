#include "engine/hosting/hosted_model.h"

#include <torch/cuda.h>

#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "engine/backend/cpu/pack_weights.h"
#include "engine/backend/tensors/tensor_model.h"
#include "engine/base/error.h"
#include "engine/checkpoint/generation_config.h"
#include "engine/checkpoint/load_tokenizer.h"
#include "engine/checkpoint/open_checkpoint.h"
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

// Tells of what is taken from another source.
class ToldSource final : public WeightSource {
 public:
  ToldSource(WeightSource& source, const HostOptions& options, int64_t layers)
      : source_(source), options_(options), layers_(layers) {}

  Weights TakeLayer(int64_t layer) override {
    Weights weights = source_.TakeLayer(layer);
    if (options_.on_layer) options_.on_layer(layer + 1, layers_);
    return weights;
  }
  Weights TakeRest() override { return source_.TakeRest(); }

 private:
  WeightSource& source_;
  const HostOptions& options_;
  const int64_t layers_;
};

// The one place that chooses what a model is served on.
std::unique_ptr<ServingModel> MakeServingModel(const ModelConfig& config, WeightSource& source,
                                               const WeightFormats& formats, at::Device device,
                                               const BackendOptions& options,
                                               std::shared_ptr<KernelContext> context) {
  if (device.is_cpu()) {
    CpuWeights weights = PackWeights(config, source, formats, options.expand_from, context->pool);
    return std::make_unique<CpuModel>(config, std::move(weights), options, std::move(context));
  }
  Weights weights;
  const auto add = [&](const Weights& part) {
    for (const auto& [name, tensor] : part) weights.emplace(name, tensor.to(device));
  };
  add(source.TakeRest());
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) add(source.TakeLayer(layer));
  return std::make_unique<TensorModel>(config, weights, DefaultComputeType(TensorsFor(formats)),
                                       options);
}

// A checkpoint as it is converted to, its weights in `tensors`. What a conversion computes is
// rounded once, at its end.
Checkpoint LoadConverted(const HostOptions& options, TensorFormat tensors, int threads) {
  SetComputeThreads(threads);  // of this thread: conversions compute
  Checkpoint checkpoint = Convert(LoadCheckpoint(options.checkpoint, TensorFormat::kFloat32),
                                  *options.conversion, options.checkpoint.string());
  for (auto& [name, tensor] : checkpoint.weights) {
    tensor = tensor.to(ToScalarType(tensors));
    if (!at::isfinite(tensor).all().item<bool>()) {
      throw LoadError(options.checkpoint.string() + ": tensor " + name +
                      ", converted, holds numbers that are not finite in " +
                      std::string(Name(tensors)) + "; allowed: finite ones");
    }
  }
  return checkpoint;
}

WeightFormats ServedFormats(const ModelConfig& stored, const HostOptions& options) {
  WeightFormats formats = options.weight_format ? *options.weight_format : StoredFormats(stored);
  if (options.embedding_format) formats.embeddings = *options.embedding_format;
  return formats;
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
  const ModelConfig stored = ReadConfig(options.checkpoint);
  std::shared_ptr<const Tokenizer> tokenizer = LoadTokenizer(options.checkpoint);
  CheckVocabulary(*tokenizer, stored, CheckpointFiles(options.checkpoint).front().string());
  GenerationConfig generation = ReadGenerationConfig(options.checkpoint);

  HostedModel model;
  model.name = options.name;
  model.weight_formats = ServedFormats(stored, options);
  model.cache_format =
      options.cache_format.value_or(DefaultCacheFormat(model.weight_formats.layers));
  CheckDevice(options.device, model.weight_formats.layers, model.weight_formats.embeddings,
              model.cache_format);
  const TensorFormat tensors = TensorsFor(model.weight_formats);
  std::unique_ptr<WeightSource> source;
  if (options.conversion) {
    Checkpoint converted = LoadConverted(options, tensors, context->pool.threads());
    model.converted_from = stored.attention;
    model.config = converted.config;
    source = std::make_unique<HeldWeights>(std::move(converted.weights));
  } else {
    auto reader = std::make_unique<CheckpointReader>(OpenCheckpoint(options.checkpoint), tensors);
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
  ToldSource told(*source, options, model.config.num_hidden_layers);
  std::unique_ptr<ServingModel> serving =
      MakeServingModel(model.config, told, model.weight_formats, ParseDevice(options.device),
                       backend, std::move(context));
  model.info = serving->info();
  model.engine = std::make_unique<Engine>(std::move(serving), model.tokenizer, options.engine);
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

HostedModel LoadHostedModel(const HostOptions& options, std::shared_ptr<KernelContext> context) {
  try {
    return Load(options, std::move(context));
  } catch (const c10::Error& e) {  // whose what() is pages of backtrace
    throw LoadError(options.checkpoint.string() + ": " + e.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    throw LoadError(options.checkpoint.string() +
                    ": the memory does not suffice for the weights and a key/value cache of " +
                    std::to_string(options.backend.kv_cache_bytes) + " bytes");
  }
}

}  // namespace triptych
