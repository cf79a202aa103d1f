#include "engine/tools/inspect.h"

#include <cmath>
#include <cstdio>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "engine/backend/cpu/step_cost.h"
#include "engine/base/asked_weight_formats.h"
#include "engine/base/error.h"
#include "engine/base/formats.h"
#include "engine/base/names.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/loading/loaded_model.h"
#include "engine/model/config.h"

namespace triptych::tools {
namespace {

// The layers with experts: "0, 2 to 26".
std::string ExpertLayers(const ModelConfig& config) {
  std::string text;
  for (int64_t first = 0; first < config.num_hidden_layers; ++first) {
    if (!config.HasExperts(first)) continue;
    int64_t last = first;
    while (last + 1 < config.num_hidden_layers && config.HasExperts(last + 1)) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(first);
    if (last > first) text += " to " + std::to_string(last);
    first = last;
  }
  return text;
}

// "6 of 64 for each token, each an MLP of 1408; in layers 1 to 26; ...".
std::string ExpertsText(const ModelConfig& config) {
  const ExpertsConfig& experts = config.experts;
  std::ostringstream text;
  text << experts.num_experts_per_tok << " of " << experts.n_routed_experts
       << " for each token, each an MLP of " << experts.moe_intermediate_size << "; in layers "
       << ExpertLayers(config) << "; by " << Name(experts.scoring_func) << ", "
       << Name(experts.topk_method);
  if (experts.topk_group < experts.n_group) {
    text << ", of " << experts.topk_group << " of " << experts.n_group << " groups";
  }
  if (experts.shared_expert_intermediate_size > 0) {
    text << "; shared: an MLP of " << experts.shared_expert_intermediate_size
         << (experts.shared_expert_gate ? " with a gate" : "");
  }
  return text.str();
}

// The bytes that a server with default options takes on a device, or why it does not serve the
// model there.
std::string DeviceText(const std::filesystem::path& model, const std::string& device) {
  LoadOptions options{
      .name = {}, .checkpoint = checkpoint::OpenCheckpoint(model), .device = device};
  options.backend.kv_cache_bytes = int64_t{1} << 30;  // or less, on a machine with little memory
  std::ostringstream text;
  try {
    const std::optional<int64_t> free = FreeDeviceBytes(device);
    if (free) {
      options.backend.kv_cache_bytes = *free;  // rotary tables grow with the cache
      options.engine.max_batch_tokens = kDefaultGpuBatchTokens;
    }
    const LoadedBytes bytes = CountLoadedBytes(options);
    text << "weights " << bytes.weights << " bytes, cache " << bytes.cache_bytes_per_position
         << " per position";
    if (bytes.workspace > 0) {
      text << ", workspace " << bytes.workspace << " for steps of "
           << options.engine.max_batch_tokens << " tokens";
    }
    if (bytes.prompts > 0) text << ", prompts up to " << bytes.prompts;
    if (bytes.loading > 0) text << ", loading about " << bytes.loading;
    if (!free) return text.str();
    text << "; " << *free << " are free";
    const int64_t block = bytes.cache_bytes_per_position * options.backend.block_positions;
    if (*free - bytes.weights - bytes.workspace - kDeviceHeadRoom < block) {
      text << "; not served: no block of the cache fits, as " << kDeviceHeadRoom << " stay unused";
    }
  } catch (const LoadError& e) {
    text << "not served: " << e.what();
  }
  return text.str();
}

}  // namespace

void Inspect(const std::filesystem::path& model, bool list_tensors,
             const std::optional<std::string>& device) {
  if (device) CheckDevice(*device, {}, {});
  const ModelConfig stored = checkpoint::ReadConfig(model);
  // Reads every tensor, one part at a time, and so checks it.
  CheckpointReader reader(checkpoint::OpenCheckpoint(model), TensorFormat::kFloat32);
  const ModelConfig& config = reader.config();
  std::string taken;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    const std::optional<int64_t> layer = LayerOf(spec.name);
    const bool attends = layer && spec.name.starts_with(AttentionPrefix(*layer));
    const std::string part = attends ? AttentionPrefix(*layer) : spec.name;
    if (part != std::exchange(taken, part)) reader.Take(part);
  }
  const WeightFormats formats = StoredFormats(stored);
  const int64_t elements = ElementsPerPosition(config);
  std::string rows;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    rows += (layer > 0 ? ", " : "") + std::to_string(CacheRowElements(config, layer));
  }
  std::string bytes;
  for (const auto& [name, format] : Names<CacheFormat>()) {
    bytes += bytes.empty() ? "" : ", ";
    bytes += std::to_string(MakeCacheGeometry(config, format, 1).BytesPerPosition());
    bytes += " in " + name;
  }
  const int64_t mha_elements = config.num_hidden_layers * MhaRowElements(config);

  std::printf("%s\n", model.c_str());
  std::printf("  attention            %s\n", std::string(Name(config.attention)).c_str());
  std::printf(
      "  layers x width       %lld x %lld, %lld heads of %lld\n",
      static_cast<long long>(config.num_hidden_layers), static_cast<long long>(config.hidden_size),
      static_cast<long long>(config.num_attention_heads), static_cast<long long>(config.head_dim));
  std::printf("  parameters           %lld, %s in %s\n",
              static_cast<long long>(ParameterCount(config)),
              stored.served_formats ? "quantized by another program; served" : "stored",
              WeightsText(formats).c_str());
  if (config.experts.n_routed_experts > 0) {
    std::printf("  active parameters    %lld for a token\n",
                static_cast<long long>(ActiveParameterCount(config)));
    std::printf("  experts              %s\n", ExpertsText(config).c_str());
  }
  std::printf("  weights per token    %lld bytes read by a step of one token\n",
              std::llround(cpu::ReadBytes(
                  config, cpu::CountStep(config, formats, /*expand_from=*/std::nullopt), 1)));
  std::printf("  context              %lld positions\n",
              static_cast<long long>(config.max_position_embeddings));
  if (config.HasWindows()) {
    const LayerGroups groups = MakeCacheGeometry(config, CacheFormat::kFloat32, 1).Groups();
    std::printf("  sliding window       %lld positions, in %lld of %lld layers\n",
                static_cast<long long>(config.sliding_window),
                static_cast<long long>(config.num_hidden_layers * groups.windowed / groups.count()),
                static_cast<long long>(config.num_hidden_layers));
  }
  std::printf("  cache row, by layer  %s elements\n", rows.c_str());
  std::printf("  cache per position   %lld elements; bytes: %s\n", static_cast<long long>(elements),
              bytes.c_str());
  std::printf("  against MHA          %lld elements: %.3g times fewer\n",
              static_cast<long long>(mha_elements),
              static_cast<double>(mha_elements) / static_cast<double>(elements));
  if (device) {
    std::printf("  %-20s %s\n", ("on " + *device).c_str(), DeviceText(model, *device).c_str());
  }
  if (!list_tensors) return;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    std::ostringstream shape;
    for (const int64_t size : spec.shape) shape << (shape.tellp() > 0 ? ", " : "[") << size;
    shape << "]";
    std::printf("  %-60s %s\n", spec.name.c_str(), shape.str().c_str());
  }
}

}  // namespace triptych::tools
