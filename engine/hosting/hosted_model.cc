#include "engine/hosting/hosted_model.h"

#include <torch/cuda.h>

#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "engine/backend/cpu/pack_weights.h"
#include "engine/backend/tensors/tensor_model.h"
#include "engine/base/error.h"
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

// The one place that chooses what a model is served on.
std::unique_ptr<ServingModel> MakeServingModel(Checkpoint checkpoint, const WeightFormats& formats,
                                               at::Device device, const BackendOptions& options,
                                               std::shared_ptr<KernelContext> context) {
  if (device.is_cpu()) {
    CpuWeights weights = PackWeights(checkpoint.config, std::move(checkpoint.weights), formats,
                                     options.expand_from, context->pool);
    return std::make_unique<CpuModel>(checkpoint.config, std::move(weights), options,
                                      std::move(context));
  }
  for (auto& [name, tensor] : checkpoint.weights) tensor = tensor.to(device);
  return std::make_unique<TensorModel>(checkpoint.config, checkpoint.weights,
                                       DefaultComputeType(TensorsFor(formats)), options);
}

WeightFormats ServedFormats(const ModelConfig& stored, const HostOptions& options) {
  WeightFormats formats = options.weight_format ? *options.weight_format : StoredFormats(stored);
  if (options.embedding_format) formats.embeddings = *options.embedding_format;
  return formats;
}

HostedModel Load(const HostOptions& options, std::shared_ptr<KernelContext> context) {
  const ModelConfig stored = ReadConfig(options.checkpoint);
  std::shared_ptr<const Tokenizer> tokenizer = LoadTokenizer(options.checkpoint);
  CheckVocabulary(*tokenizer, stored, CheckpointFiles(options.checkpoint).front().string());

  HostedModel model;
  model.name = options.name;
  model.weight_formats = ServedFormats(stored, options);
  model.cache_format =
      options.cache_format.value_or(DefaultCacheFormat(model.weight_formats.layers));
  CheckDevice(options.device, model.weight_formats.layers, model.weight_formats.embeddings,
              model.cache_format);
  // What a conversion computes is rounded to the weights' format once, at its end.
  const TensorFormat tensors = TensorsFor(model.weight_formats);
  Checkpoint checkpoint =
      LoadCheckpoint(options.checkpoint, options.conversion ? TensorFormat::kFloat32 : tensors);
  if (options.conversion) {
    model.converted_from = checkpoint.config.attention;
    SetComputeThreads(context->pool.threads());  // of this thread: conversions compute
    checkpoint = Convert(checkpoint, *options.conversion, options.checkpoint.string());
    for (auto& [name, tensor] : checkpoint.weights) {
      tensor = tensor.to(ToScalarType(tensors));
      if (!at::isfinite(tensor).all().item<bool>()) {
        throw LoadError(options.checkpoint.string() + ": tensor " + name +
                        ", converted, holds numbers that are not finite in " +
                        std::string(Name(tensors)) + "; allowed: finite ones");
      }
    }
  }
  model.config = checkpoint.config;
  model.parameters = ParameterCount(model.config);
  model.parameter_bytes = ParameterBytes(model.config, model.weight_formats);
  model.latent_forms = ReducedForms(model.config);
  model.tokenizer = std::move(tokenizer);

  BackendOptions backend = options.backend;
  backend.cache_format = model.cache_format;
  std::unique_ptr<ServingModel> serving =
      MakeServingModel(std::move(checkpoint), model.weight_formats, ParseDevice(options.device),
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
