#include "engine/tools/inspect.h"

#include <cstdio>
#include <sstream>
#include <string>

#include "engine/base/formats.h"
#include "engine/base/names.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/decoder/decoder.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/weights.h"
#include "engine/model/config.h"
#include "engine/tools/card.h"

namespace triptych::tools {

void Inspect(const std::filesystem::path& model, bool list_tensors) {
  const ModelConfig stored = checkpoint::ReadConfig(model);
  const Checkpoint checkpoint = LoadCheckpoint(model, TensorFormat::kFloat32);
  const ModelConfig& config = checkpoint.config;
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
              DTypesText(StoredFormats(stored)).c_str());
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
  if (!list_tensors) return;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    std::ostringstream shape;
    shape << checkpoint.weights.at(spec.name).sizes();
    std::printf("  %-60s %s\n", spec.name.c_str(), shape.str().c_str());
  }
}

}  // namespace triptych::tools
