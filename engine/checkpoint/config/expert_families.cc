#include "engine/checkpoint/config/expert_families.h"

#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoint/config/expert_fields.h"
#include "engine/checkpoint/config/grouped_fields.h"
#include "engine/checkpoint/config/llama_families.h"
#include "engine/checkpoint/config/llama_variants.h"
#include "engine/checkpoint/config/published_fields.h"
#include "engine/checkpoint/config/rope_scaling.h"
#include "engine/model/tensor_names.h"
#include "engine/model/validate_config.h"

namespace triptych::checkpoint {
namespace {

// Every field except those of attention's biases, windows and experts.
ModelConfig TakeDecoder(JsonFields& fields) {
  RequireFields(fields, {"num_key_value_heads", "rms_norm_eps"});
  ModelConfig config = TakeGroupedSizes(fields);
  RequireRopeTheta(fields);
  TakeRope(fields, config);
  TakeRmsNorm(fields, config);
  TakeSwiglu(fields, config);
  TakeHead(fields, /*tied=*/false, config);
  return config;
}

// The experts of Qwen: in every decoder_sparse_step-th layer, except in mlp_only_layers.
void TakeQwenExperts(JsonFields& fields, ModelConfig& config) {
  constexpr const char *kStep = "decoder_sparse_step", *kDense = "mlp_only_layers";
  const int64_t layers = config.num_hidden_layers;
  TakeSoftmaxExperts(fields, "num_experts", fields.Bool("norm_topk_prob", false), config);
  config.experts.moe_intermediate_size = fields.Int("moe_intermediate_size", config_limits::kWidth);
  const int64_t step = fields.Int(kStep, {1, 1 << 20}, 1);
  std::vector<int64_t> flags;
  for (int64_t layer = 1; layer <= layers; ++layer) flags.push_back(layer % step == 0 ? 1 : 0);
  if (fields.Has(kDense)) {
    for (const Json& layer : fields.List(kDense)) {
      flags[fields.CheckedInt(kDense, layer, {0, layers - 1})] = 0;
    }
  }
  config.experts.sparse_layers = SparseLayers(std::move(flags));
}

// The layers that have experts, by the prefix of their tensors.
std::vector<std::string> ExpertLayers(const ModelConfig& config) {
  std::vector<std::string> prefixes;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (config.HasExperts(layer)) prefixes.push_back(LayerPrefix(layer));
  }
  return prefixes;
}

}  // namespace

// Granite's softmax is over the chosen logits: the normalized softmax over all.
ModelConfig ParseGraniteMoeConfig(JsonFields& fields) {
  ModelConfig config = ParseGraniteConfig(fields);
  TakeSoftmaxExperts(fields, "num_local_experts", /*normalized=*/true, config);
  config.experts.moe_intermediate_size = config.intermediate_size;
  return config;
}

ModelConfig ParseMixtralConfig(JsonFields& fields) {
  ModelConfig config = TakeDecoder(fields);
  TakeSoftmaxExperts(fields, "num_local_experts", /*normalized=*/true, config);
  config.experts.moe_intermediate_size = config.intermediate_size;
  fields.Only("attention_bias", false);
  fields.Ignore("router_jitter_noise");  // of training
  SetWindow(TakeWindow(fields, 0), {}, config);
  return config;
}

ModelConfig ParseOlmoeConfig(JsonFields& fields) {
  fields.Only("clip_qkv", nullptr);
  ModelConfig config = TakeDecoder(fields);
  config.qk_norm = config.qk_norm_all_heads = true;
  config.attention_bias = fields.Bool("attention_bias", false);
  TakeSoftmaxExperts(fields, "num_experts", fields.Bool("norm_topk_prob", false), config);
  config.experts.moe_intermediate_size = config.intermediate_size;
  return config;
}

ModelConfig ParseQwen2MoeConfig(JsonFields& fields) {
  ModelConfig config = ParseQwen2Config(fields);
  config.attention_bias = fields.Bool("qkv_bias", true);
  TakeQwenExperts(fields, config);
  config.experts.shared_expert_intermediate_size =
      fields.Int("shared_expert_intermediate_size", config_limits::kWidth);
  config.experts.shared_expert_gate = true;
  return config;
}

ModelConfig ParseQwen3MoeConfig(JsonFields& fields) {
  ModelConfig config = ParseQwen3Config(fields);
  TakeQwenExperts(fields, config);
  return config;
}

TensorMap GraniteMoeTensors(const ModelConfig& config, const TensorSource& published) {
  TensorMap map = LlamaTensors(config, published);
  const int64_t width = config.hidden_size, inner = config.experts.moe_intermediate_size;
  const int64_t count = config.experts.n_routed_experts;
  for (const std::string& layer : ExpertLayers(config)) {
    const std::string joined = layer + "block_sparse_moe.";
    map.origins.emplace(layer + "mlp.gate.weight",
                        TensorOrigin{.tensor = joined + "router.layer.weight"});
    for (int64_t expert = 0; expert < count; ++expert) {
      const std::string routed = layer + "mlp.experts." + std::to_string(expert) + ".";
      const auto add = [&](const char* name, const char* from, int64_t first, int64_t rows,
                           int64_t of_rows) {
        map.origins.emplace(routed + name, TensorOrigin{.tensor = joined + from,
                                                        .first_row = first,
                                                        .rows = rows,
                                                        .of_rows = of_rows,
                                                        .matrix = expert,
                                                        .of_matrices = count});
      };
      add("gate_proj.weight", "input_linear.weight", 0, inner, 2 * inner);
      add("up_proj.weight", "input_linear.weight", inner, inner, 2 * inner);
      add("down_proj.weight", "output_linear.weight", 0, width, width);
    }
  }
  return map;
}

TensorMap MixtralTensors(const ModelConfig& config, const TensorSource& published) {
  TensorMap map = LlamaTensors(config, published);
  for (const std::string& layer : ExpertLayers(config)) {
    const std::string theirs = layer + "block_sparse_moe.";
    map.origins.emplace(layer + "mlp.gate.weight", TensorOrigin{.tensor = theirs + "gate.weight"});
    for (int64_t expert = 0; expert < config.experts.n_routed_experts; ++expert) {
      const std::string routed = "experts." + std::to_string(expert) + ".";
      for (const auto& [to, from] :
           {std::pair{"gate_proj", "w1"}, {"up_proj", "w3"}, {"down_proj", "w2"}}) {
        map.origins.emplace(layer + "mlp." + routed + to + ".weight",
                            TensorOrigin{.tensor = theirs + routed + from + ".weight"});
      }
    }
  }
  return map;
}

TensorMap Qwen2MoeTensors(const ModelConfig& config, const TensorSource& published) {
  TensorMap map = LlamaTensors(config, published);
  for (const std::string& layer : ExpertLayers(config)) {
    for (const char* matrix : {"gate_proj.weight", "up_proj.weight", "down_proj.weight"}) {
      map.origins.emplace(layer + "mlp.shared_experts." + matrix,
                          TensorOrigin{.tensor = layer + "mlp.shared_expert." + matrix});
    }
  }
  return map;
}

}  // namespace triptych::checkpoint
