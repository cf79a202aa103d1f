#include "engine/hosting/hosted_model.h"

#include <torch/cuda.h>

#include <stdexcept>
#include <utility>

#include "engine/checkpoint/config_file.h"
#include "engine/checkpoint/load_tokenizer.h"
#include "engine/decoder/decoder.h"
#include "engine/decoder/weights.h"

namespace triptych {

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

HostedModel LoadHostedModel(const HostOptions& options) {
  const std::filesystem::path config_file = options.directory / kConfigFile;
  const ModelConfig stored = ReadModelConfig(config_file);
  std::shared_ptr<const Tokenizer> tokenizer = LoadTokenizer(options.directory);
  CheckVocabulary(*tokenizer, stored, config_file.string());

  HostedModel model;
  model.name = options.name;
  model.weight_format = options.weight_format.value_or(stored.torch_dtype);
  model.cache_format = options.cache_format.value_or(DefaultCacheFormat(model.weight_format));
  // What a conversion computes is rounded to the weights' dtype once, at its end.
  Checkpoint checkpoint = LoadCheckpoint(
      options.directory, options.conversion ? WeightFormat::kFloat32 : model.weight_format);
  if (options.conversion) {
    model.converted_from = checkpoint.config.attention;
    checkpoint = Convert(checkpoint, *options.conversion, options.directory.string());
    for (auto& [name, tensor] : checkpoint.weights) {
      tensor = tensor.to(ToScalarType(model.weight_format));
    }
  }
  model.config = checkpoint.config;
  model.parameters = ParameterCount(model.config);
  model.parameter_bytes = WeightBytes(model.weight_format, model.parameters);
  model.tokenizer = std::move(tokenizer);

  for (auto& [name, tensor] : checkpoint.weights) tensor = tensor.to(options.device);
  auto decoder = std::make_unique<Decoder>(checkpoint.config, checkpoint.weights,
                                           ToScalarType(model.weight_format));
  decoder->PrepareToServe(options.vanilla_from);
  decoder->DropDense();
  model.latent_forms = decoder->reduced_forms();
  if (decoder->vanilla_from() < model.config.max_position_embeddings) {
    model.vanilla_from = decoder->vanilla_from();
  }
  EngineOptions engine = options.engine;
  engine.cache_format = model.cache_format;
  model.engine = std::make_unique<Engine>(std::move(decoder), model.tokenizer, engine);
  return model;
}

}  // namespace triptych
