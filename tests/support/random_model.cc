#include "tests/support/random_model.h"

#include <random>

#include "engine/decoder/tensor_specs.h"
#include "tests/support/tensors.h"

namespace triptych {
namespace {

ModelConfig Base(AttentionKind kind) {
  ModelConfig config;
  config.vocab_size = 37;
  config.hidden_size = 24;
  config.intermediate_size = 43;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 4;
  config.head_dim = 6;
  config.max_position_embeddings = 40;
  config.attention = kind;
  if (kind == AttentionKind::kGqa) config.num_key_value_heads = 2;
  if (kind == AttentionKind::kMla) config.kv_lora_rank = {7, 7};
  return config;
}

}  // namespace

std::vector<NamedConfig> EveryOption() {
  std::vector<NamedConfig> configs;
  const auto add = [&](const std::string& name, AttentionKind kind) -> ModelConfig& {
    return configs.emplace_back(NamedConfig{name, Base(kind)}).config;
  };

  add("MhaLearned", AttentionKind::kMha);
  {
    ModelConfig& config = add("MhaEveryBias", AttentionKind::kMha);
    config.position_embedding = PositionEmbedding::kSinusoidal;
    config.norm = NormKind::kLayerNorm;
    config.norm_bias = true;
    config.mlp = MlpKind::kGelu;
    config.hidden_act = HiddenAct::kGelu;
    config.mlp_bias = true;
    config.attention_bias = true;
    config.tie_word_embeddings = true;
  }
  {
    ModelConfig& config = add("MhaNoPositions", AttentionKind::kMha);
    config.position_embedding = PositionEmbedding::kNone;
    config.norm = NormKind::kLayerNorm;
    config.mlp = MlpKind::kGelu;
    config.hidden_act = HiddenAct::kGeluExact;
    config.norm_eps = 0.01;
  }
  {
    ModelConfig& config = add("MhaRotary", AttentionKind::kMha);
    config.position_embedding = PositionEmbedding::kRope;
    config.rope_theta = 100;
    config.tie_word_embeddings = true;
  }
  add("GqaLearned", AttentionKind::kGqa);
  {
    ModelConfig& config = add("GqaRotaryOddShare", AttentionKind::kGqa);  // H/G = 3, H * d != D
    config.position_embedding = PositionEmbedding::kRope;
    config.num_attention_heads = 15;
    config.num_key_value_heads = 5;
    config.head_dim = 10;
    config.attention_bias = true;
  }
  {
    ModelConfig& config = add("GqaOneGroup", AttentionKind::kGqa);
    config.num_key_value_heads = 1;
    config.mlp_bias = true;
    config.num_hidden_layers = 3;
  }
  add("MlaLearned", AttentionKind::kMla);
  {
    ModelConfig& config = add("MlaRanksBiasNorm", AttentionKind::kMla);
    config.num_hidden_layers = 3;
    config.kv_lora_rank = {5, 21, 11};
    config.kv_a_layernorm = true;
    config.attention_bias = true;
    config.norm_eps = 0.001;
  }
  {
    ModelConfig& config = add("MlaDecoupledKeys", AttentionKind::kMla);
    config.position_embedding = PositionEmbedding::kRope;
    config.qk_rope_head_dim = 4;
    config.kv_a_layernorm = true;
    config.attention_bias = true;
    config.norm = NormKind::kLayerNorm;
  }
  {
    ModelConfig& config = add("MlaNormedKeys", AttentionKind::kMla);
    config.position_embedding = PositionEmbedding::kRope;
    config.qk_rope_head_dim = 4;
    config.qk_norm = true;
    config.num_key_value_heads = 2;
    config.norm_eps = 0.01;
  }
  {
    ModelConfig& config = add("MlaNormedKeysOfEveryHead", AttentionKind::kMla);
    config.qk_norm = true;
    config.kv_a_layernorm = true;
    config.kv_lora_rank = {5, 21};
    config.attention_bias = true;
  }
  {
    ModelConfig& config = add("GqaExperts", AttentionKind::kGqa);
    config.num_hidden_layers = 3;
    config.experts = {.n_routed_experts = 6,
                      .num_experts_per_tok = 2,
                      .moe_intermediate_size = 11,
                      .shared_expert_intermediate_size = 13,
                      .shared_expert_gate = true,
                      .scoring_func = ScoringFunc::kSigmoid,
                      .topk_method = TopkMethod::kNoauxTc,
                      .n_group = 3,
                      .topk_group = 2,
                      .norm_topk_prob = true,
                      .routed_scaling_factor = 2.5,
                      .sparse_layers = {1, 0, 1}};
  }
  {
    ModelConfig& config = add("MlaExperts", AttentionKind::kMla);  // the first layer is dense
    config.position_embedding = PositionEmbedding::kRope;
    config.qk_rope_head_dim = 4;
    config.kv_a_layernorm = true;
    config.experts = {.n_routed_experts = 5,
                      .num_experts_per_tok = 3,
                      .moe_intermediate_size = 9,
                      .shared_expert_intermediate_size = 18,
                      .sparse_layers = {0, 1}};
  }
  {
    ModelConfig& config = add("MlaSquaredRelu", AttentionKind::kMla);
    config.position_embedding = PositionEmbedding::kRope;
    config.qk_rope_head_dim = 4;
    config.kv_a_layernorm = true;
    config.mlp = MlpKind::kRelu2;
    config.hidden_act = HiddenAct::kRelu2;
  }
  {
    ModelConfig& config = add("MlaWideRank", AttentionKind::kMla);  // served factored
    config.position_embedding = PositionEmbedding::kRope;
    config.qk_rope_head_dim = 6;
    config.kv_lora_rank = {19, 24};
    config.tie_word_embeddings = true;
  }
  return configs;
}

std::vector<NamedConfig> EveryOptionOfExperts() {
  std::vector<NamedConfig> configs;
  const auto add = [&](const std::string& name, AttentionKind kind,
                       const ExpertsConfig& experts) -> ModelConfig& {
    ModelConfig& config = configs.emplace_back(NamedConfig{name, Base(kind)}).config;
    config.experts = experts;
    return config;
  };
  add("Experts", AttentionKind::kGqa,
      {.n_routed_experts = 5,
       .num_experts_per_tok = 2,
       .moe_intermediate_size = 19,
       .sparse_layers = {}});
  {
    ModelConfig& config = add("ExpertsGatedAndDenseLayers", AttentionKind::kMha,
                              {.n_routed_experts = 4,
                               .num_experts_per_tok = 3,
                               .moe_intermediate_size = 11,
                               .shared_expert_intermediate_size = 13,
                               .shared_expert_gate = true,
                               .norm_topk_prob = true,
                               .routed_scaling_factor = 1.5,
                               .sparse_layers = {1, 0, 1}});
    config.num_hidden_layers = 3;
  }
  add("ExpertsOfGroups", AttentionKind::kMha,
      {.n_routed_experts = 6,
       .num_experts_per_tok = 3,
       .moe_intermediate_size = 11,
       .topk_method = TopkMethod::kGroupLimitedGreedy,
       .n_group = 3,
       .topk_group = 2,
       .routed_scaling_factor = 2,
       .sparse_layers = {}});
  {
    ModelConfig& config = add("MlaExpertsByBias", AttentionKind::kMla,
                              {.n_routed_experts = 8,
                               .num_experts_per_tok = 3,
                               .moe_intermediate_size = 11,
                               .shared_expert_intermediate_size = 22,
                               .scoring_func = ScoringFunc::kSigmoid,
                               .topk_method = TopkMethod::kNoauxTc,
                               .n_group = 4,
                               .topk_group = 2,
                               .norm_topk_prob = true,
                               .routed_scaling_factor = 2.5,
                               .sparse_layers = {}});
    config.position_embedding = PositionEmbedding::kRope;
    config.qk_rope_head_dim = 4;
    config.kv_a_layernorm = true;
  }
  return configs;
}

ModelConfig SmallModel(AttentionKind kind) {
  ModelConfig config = Base(kind);
  config.vocab_size = 258;
  config.max_position_embeddings = 64;
  config.tie_word_embeddings = false;
  return config;
}

ModelConfig SmallExpertsModel(AttentionKind kind) {
  ModelConfig config = SmallModel(kind);
  config.experts = {.n_routed_experts = 6,
                    .num_experts_per_tok = 2,
                    .moe_intermediate_size = 32,
                    .shared_expert_intermediate_size = 16,
                    .norm_topk_prob = true};
  return config;
}

std::vector<NamedConfig> EachKind() {
  return {{"Mha", SmallModel(AttentionKind::kMha)},
          {"Gqa", SmallModel(AttentionKind::kGqa)},
          {"Mla", SmallModel(AttentionKind::kMla)}};
}

void PrintTo(const HeadShape& shape, std::ostream* os) {
  *os << "D " << shape.width << ", H " << shape.heads << ", G " << shape.groups << ", d "
      << shape.d;
}

std::vector<HeadShape> RandomHeadShapes(int count, uint64_t seed) {
  std::mt19937_64 generator(seed);
  const auto draw = [&](int64_t most) { return static_cast<int64_t>(generator() % most) + 1; };
  std::vector<HeadShape> shapes;
  for (int i = 0; i < count; ++i) {
    const int64_t groups = draw(4);
    const int64_t heads = groups * draw(4);
    const int64_t d = draw(7);
    // Half of the shapes have D = H * d, as most models do.
    const int64_t width = draw(2) == 1 ? heads * d : 1 + draw(40);
    shapes.push_back({width, heads, groups, d});
  }
  return shapes;
}

ModelConfig SmallModel(const HeadShape& shape) {
  const bool multi_head = shape.groups == shape.heads;
  ModelConfig config = SmallModel(multi_head ? AttentionKind::kMha : AttentionKind::kGqa);
  config.hidden_size = shape.width;
  config.num_attention_heads = shape.heads;
  config.num_key_value_heads = shape.groups;
  config.head_dim = shape.d;
  return config;
}

Weights RandomWeights(const ModelConfig& config, uint64_t seed) {
  Normal normal(seed);
  Weights weights;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    if (spec.shape.size() == 2) {
      weights[spec.name] = normal.Weight(spec.shape[0], spec.shape[1]);
    } else {
      const bool bias = spec.name.ends_with("bias");
      weights[spec.name] = normal.Tensor(spec.shape, 0.3) + (bias ? 0.0 : 1.0);
    }
  }
  return weights;
}

Weights Cast(const Weights& weights, at::ScalarType dtype) {
  Weights cast;
  for (const auto& [name, tensor] : weights) cast[name] = tensor.to(dtype);
  return cast;
}

oracle::Arrays ToArrays(const Weights& weights) {
  oracle::Arrays arrays;
  for (const auto& [name, tensor] : weights) arrays[name] = ToMatrix(tensor);
  return arrays;
}

}  // namespace triptych
