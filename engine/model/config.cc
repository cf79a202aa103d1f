#include "engine/model/config.h"

#include <algorithm>
#include <numeric>

namespace triptych {

std::string_view Name(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::kMha:
      return "mha";
    case AttentionKind::kGqa:
      return "gqa";
    case AttentionKind::kMla:
      return "mla";
  }
  return {};
}

std::string_view Name(PositionEmbedding positions) {
  switch (positions) {
    case PositionEmbedding::kLearned:
      return "learned";
    case PositionEmbedding::kSinusoidal:
      return "sinusoidal";
    case PositionEmbedding::kRope:
      return "rope";
    case PositionEmbedding::kNone:
      return "none";
  }
  return {};
}

std::string_view Name(NormKind norm) {
  switch (norm) {
    case NormKind::kRmsNorm:
      return "rms_norm";
    case NormKind::kLayerNorm:
      return "layer_norm";
  }
  return {};
}

std::string_view Name(MlpKind mlp) {
  switch (mlp) {
    case MlpKind::kGelu:
      return "gelu";
    case MlpKind::kSwiglu:
      return "swiglu";
    case MlpKind::kGeglu:
      return "geglu";
    case MlpKind::kRelu2:
      return "relu2";
  }
  return {};
}

std::string_view Name(HiddenAct act) {
  switch (act) {
    case HiddenAct::kGelu:
      return "gelu";
    case HiddenAct::kGeluExact:
      return "gelu_exact";
    case HiddenAct::kSilu:
      return "silu";
    case HiddenAct::kRelu2:
      return "relu2";
  }
  return {};
}

std::string_view Name(ScoringFunc scores) {
  switch (scores) {
    case ScoringFunc::kSoftmax:
      return "softmax";
    case ScoringFunc::kSigmoid:
      return "sigmoid";
  }
  return {};
}

std::string_view Name(TopkMethod method) {
  switch (method) {
    case TopkMethod::kGreedy:
      return "greedy";
    case TopkMethod::kGroupLimitedGreedy:
      return "group_limited_greedy";
    case TopkMethod::kNoauxTc:
      return "noaux_tc";
  }
  return {};
}

std::string_view Name(HeadGrouping grouping) {
  switch (grouping) {
    case HeadGrouping::kModular:
      return "modular";
    case HeadGrouping::kContiguous:
      return "contiguous";
  }
  return {};
}

std::string_view Name(LayerType type) {
  switch (type) {
    case LayerType::kFull:
      return "full_attention";
    case LayerType::kSliding:
      return "sliding_attention";
  }
  return {};
}

bool ModelConfig::HasWindows() const {
  return sliding_window > 0 && sliding_window < max_position_embeddings &&
         (layer_types.empty() || std::find(layer_types.begin(), layer_types.end(),
                                           LayerType::kSliding) != layer_types.end());
}

WeightFormats StoredFormats(const ModelConfig& config) {
  if (config.served_formats) return *config.served_formats;
  const WeightFormat numbers = ToWeightFormat(config.torch_dtype);
  if (!config.quantization) return numbers;
  const auto& [format, embeddings] = *config.quantization;
  return {format, embeddings ? format : numbers};
}

int64_t CacheRowElements(const ModelConfig& config, int64_t layer) {
  if (config.attention == AttentionKind::kMla) {
    return config.kv_lora_rank.at(layer) + config.qk_rope_head_dim + config.NormedKeys();
  }
  return config.num_key_value_heads * 2 * config.head_dim;
}

std::vector<int64_t> CacheRowElements(const ModelConfig& config) {
  std::vector<int64_t> elements;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    elements.push_back(CacheRowElements(config, layer));
  }
  return elements;
}

int64_t ElementsPerPosition(const ModelConfig& config) {
  const std::vector<int64_t> elements = CacheRowElements(config);
  return std::accumulate(elements.begin(), elements.end(), int64_t{0});
}

int64_t CacheRowBytes(const ModelConfig& config, int64_t layer, CacheFormat format) {
  const int64_t norms = config.NormedKeys();
  const int64_t elements =
      CacheRowElements(config, layer) - norms + WideNumbers(format, config.qk_rope_head_dim);
  return RowBytes(format, elements) + norms * kInverseNormBytes;
}

int64_t CacheRotation(const ModelConfig& config, int64_t layer, CacheFormat format) {
  if (config.attention != AttentionKind::kMla) return CacheRotation(format, config.head_dim);
  return CacheRotation(format,
                       std::gcd(config.kv_lora_rank.at(layer), 2 * config.qk_rope_head_dim));
}

int64_t MhaRowElements(const ModelConfig& config) {
  return config.num_attention_heads * (config.QueryDim() + config.ValueDim());
}

CacheGeometry MakeCacheGeometry(const ModelConfig& config, CacheFormat format,
                                int64_t block_positions) {
  CacheGeometry geometry{.block_positions = block_positions,
                         .row_bytes = {},
                         .mha_bytes_per_position =
                             config.num_hidden_layers * RowBytes(format, MhaRowElements(config))};
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    geometry.row_bytes.push_back(CacheRowBytes(config, layer, format));
    if (config.HasWindows()) geometry.windowed.push_back(config.Window(layer) != kNoWindow);
  }
  if (config.HasWindows()) geometry.window = config.sliding_window;
  return geometry;
}

}  // namespace triptych
