#include "engine/decoder/tensor_specs.h"

#include <cstddef>
#include <functional>
#include <numeric>
#include <utility>

#include "engine/model/latent_shape.h"

namespace triptych {
namespace {

constexpr const char* kExperts = ".mlp.experts.";
constexpr const char* kRouter = ".mlp.gate.weight";
constexpr const char* kSharedExpertGate = ".mlp.shared_expert_gate.weight";

bool IsEmbedding(const TensorSpec& spec) {
  return spec.name == kEmbeddingName || spec.name == kOutputName;
}

// Whether serving multiplies by it, or by a matrix made of it, in the format of weights.
bool IsMatrix(const TensorSpec& spec) {
  return spec.shape.size() == 2 && spec.name != kPositionsName && !spec.name.ends_with(kRouter) &&
         !spec.name.ends_with(kSharedExpertGate);
}

int64_t ElementsOf(const TensorSpec& spec) {
  return std::accumulate(spec.shape.begin(), spec.shape.end(), int64_t{1}, std::multiplies<>());
}

// Collects specs in the order of the forward pass.
class SpecBuilder {
 public:
  explicit SpecBuilder(const ModelConfig& config) : config_(config) {}

  void Add(std::string name, std::vector<int64_t> shape) {
    specs_.push_back({std::move(name), std::move(shape)});
  }
  void AddNorm(const std::string& name) {
    Add(name + ".weight", {config_.hidden_size});
    if (config_.norm_bias) Add(name + ".bias", {config_.hidden_size});
  }
  void AddAttention(int64_t layer) {
    const int64_t width = config_.hidden_size, heads = config_.num_attention_heads;
    const std::string attention = AttentionPrefix(layer);
    const bool bias = config_.attention_bias;
    if (config_.q_lora_rank > 0) {
      AddLinear(attention + "q_a_proj", config_.q_lora_rank, width, config_.latent_bias);
      Add(attention + "q_a_layernorm.weight", {config_.q_lora_rank});
      AddLinear(attention + "q_b_proj", heads * config_.QueryDim(), config_.q_lora_rank, bias);
    } else {
      AddLinear(attention + "q_proj", heads * config_.QueryDim(), width, bias);
    }
    if (config_.attention == AttentionKind::kMla) {
      AddLatents(attention, config_.kv_lora_rank[layer]);
    } else {
      AddKeysAndValues(attention);
    }
    AddLinear(attention + "o_proj", width, heads * config_.ValueDim(), config_.OutputBias());
  }
  void AddMlp(int64_t layer) {
    if (config_.HasExperts(layer)) return AddExperts(layer);
    AddMlp(MlpPrefix(layer), config_.intermediate_size);
  }

  std::vector<TensorSpec> Take() { return std::move(specs_); }

 private:
  void AddLinear(const std::string& name, int64_t outputs, int64_t inputs, bool bias) {
    Add(name + ".weight", {outputs, inputs});
    if (bias) Add(name + ".bias", {outputs});
  }
  void AddMlp(const std::string& prefix, int64_t inner) {
    const int64_t width = config_.hidden_size;
    if (config_.GatesMlp()) {
      AddLinear(prefix + "gate_proj", inner, width, config_.mlp_bias);
    }
    AddLinear(prefix + "up_proj", inner, width, config_.mlp_bias);
    AddLinear(prefix + "down_proj", width, inner, config_.mlp_bias);
  }
  void AddExperts(int64_t layer) {
    const ExpertsConfig& experts = config_.experts;
    const int64_t width = config_.hidden_size, count = experts.n_routed_experts;
    Add(RouterName(layer), {count, width});
    if (experts.topk_method == TopkMethod::kNoauxTc) Add(RouterBiasName(layer), {count});
    for (int64_t expert = 0; expert < count; ++expert) {
      AddMlp(ExpertPrefix(layer, expert), experts.moe_intermediate_size);
    }
    if (experts.shared_expert_intermediate_size == 0) return;
    AddMlp(SharedExpertsPrefix(layer), experts.shared_expert_intermediate_size);
    if (experts.shared_expert_gate) Add(SharedExpertGateName(layer), {1, width});
  }
  void AddLatents(const std::string& attention, int64_t rank) {
    AddLinear(attention + "kv_a_proj_with_mqa", rank + config_.qk_rope_head_dim,
              config_.hidden_size, config_.latent_bias);
    if (config_.kv_a_layernorm) Add(attention + "kv_a_layernorm.weight", {rank});
    AddLinear(attention + "kv_b_proj",
              config_.num_attention_heads * (config_.head_dim + config_.ValueDim()), rank, false);
    if (!config_.qk_norm) return;
    Add(attention + "q_norm.weight", {config_.num_attention_heads * config_.head_dim});
    AddLinear(attention + "k_proj", config_.num_key_value_heads * config_.head_dim,
              config_.hidden_size, false);
  }
  void AddKeysAndValues(const std::string& attention) {
    const int64_t rows = config_.num_key_value_heads * config_.head_dim;
    AddLinear(attention + "k_proj", rows, config_.hidden_size, config_.attention_bias);
    AddLinear(attention + "v_proj", rows, config_.hidden_size, config_.attention_bias);
    if (!config_.qk_norm) return;
    const bool all = config_.qk_norm_all_heads;
    Add(attention + "q_norm.weight",
        {all ? config_.num_attention_heads * config_.head_dim : config_.head_dim});
    Add(attention + "k_norm.weight", {all ? rows : config_.head_dim});
  }

  const ModelConfig& config_;
  std::vector<TensorSpec> specs_;
};

}  // namespace

std::string AttentionPrefix(int64_t layer) { return LayerPrefix(layer) + "self_attn."; }
std::string MlpPrefix(int64_t layer) { return LayerPrefix(layer) + "mlp."; }
std::string ExpertPrefix(int64_t layer, int64_t expert) {
  return MlpPrefix(layer) + "experts." + std::to_string(expert) + '.';
}
std::string SharedExpertsPrefix(int64_t layer) { return MlpPrefix(layer) + "shared_experts."; }
bool IsOfExpert(const std::string& name) { return name.find(kExperts) != name.npos; }
std::string RouterName(int64_t layer) { return MlpPrefix(layer) + "gate.weight"; }
std::string RouterBiasName(int64_t layer) {
  return MlpPrefix(layer) + "gate.e_score_correction_bias";
}
std::string SharedExpertGateName(int64_t layer) {
  return MlpPrefix(layer) + "shared_expert_gate.weight";
}

std::vector<TensorSpec> ExpectedTensors(const ModelConfig& config) {
  SpecBuilder specs(config);
  specs.Add(kEmbeddingName, {config.vocab_size, config.hidden_size});
  if (config.position_embedding == PositionEmbedding::kLearned) {
    specs.Add(kPositionsName, {config.max_position_embeddings, config.hidden_size});
  }
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string prefix = LayerPrefix(layer);
    if (config.norm_inputs) specs.AddNorm(prefix + "input_layernorm");
    specs.AddAttention(layer);
    if (config.norm_outputs) specs.AddNorm(prefix + "post_self_attn_layernorm");
    if (config.NormsMlpInput()) specs.AddNorm(prefix + "post_attention_layernorm");
    specs.AddMlp(layer);
    if (config.norm_outputs) specs.AddNorm(prefix + "post_mlp_layernorm");
  }
  specs.AddNorm("model.norm");
  if (!config.tie_word_embeddings) specs.Add(kOutputName, {config.vocab_size, config.hidden_size});
  return specs.Take();
}

int64_t ParameterCount(const ModelConfig& config) {
  int64_t count = 0;
  for (const TensorSpec& spec : ExpectedTensors(config)) count += ElementsOf(spec);
  return count;
}

int64_t ActiveParameterCount(const ModelConfig& config) {
  int64_t others = 0, routed = 0;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    (IsOfExpert(spec.name) ? routed : others) += ElementsOf(spec);
  }
  const ExpertsConfig& experts = config.experts;
  if (experts.n_routed_experts == 0) return others;
  return others + routed / experts.n_routed_experts * experts.num_experts_per_tok;
}

int64_t ParameterBytes(const ModelConfig& config, const WeightFormats& formats) {
  int64_t bytes = 0;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    const WeightFormat own = IsEmbedding(spec)       ? formats.embeddings
                             : IsOfExpert(spec.name) ? formats.experts
                                                     : formats.layers;
    const int64_t rows = spec.shape.size() == 2 ? spec.shape[0] : 1;
    bytes += WeightBytes(IsInteger(own) && !IsMatrix(spec) ? WeightFormat::kFloat32 : own,
                         spec.shape.back(), rows);
  }
  return bytes;
}

std::set<std::string> IntegerTensors(const ModelConfig& config) {
  std::set<std::string> names;
  if (!config.quantization) return names;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    if (IsMatrix(spec) && (config.quantization->embeddings || !IsEmbedding(spec))) {
      names.insert(spec.name);
    }
  }
  const std::vector<ReducedForm> forms = ReducedForms(config);
  for (size_t layer = 0; layer < forms.size(); ++layer) {
    const std::string attention = AttentionPrefix(static_cast<int64_t>(layer));
    names.erase(attention + "kv_b_proj.weight");
    if (forms[layer] == ReducedForm::kPremultiplied) {
      names.erase(attention + (config.q_lora_rank > 0 ? "q_b_proj.weight" : "q_proj.weight"));
      names.erase(attention + "o_proj.weight");
    }
  }
  return names;
}

std::vector<std::string> PartPrefixes(const ModelConfig& config) {
  std::vector<std::string> prefixes;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    if (!LayerOf(spec.name)) prefixes.push_back(spec.name);
  }
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    prefixes.push_back(LayerPrefix(layer));
  }
  return prefixes;
}

}  // namespace triptych
