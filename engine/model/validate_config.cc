#include "engine/model/validate_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <set>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/json.h"

namespace triptych {
namespace {

std::string Shown(int64_t value) { return std::to_string(value); }
std::string Shown(std::string_view value) { return '"' + std::string(value) + '"'; }
// The shortest decimal: 1e-05, 2, nan.
std::string Shown(double value) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.begin(), text.end(), value).ptr};
}

bool IsSha256(std::string_view digits) {
  return digits.size() == 64 && std::all_of(digits.begin(), digits.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

class Validator {
 public:
  Validator(const ModelConfig& config, const ConfigOrigin& origin)
      : config_(config), origin_(origin) {}

  void Sizes() const {
    In(config_limits::kVocabulary, "vocab_size", config_.vocab_size);
    In(config_limits::kWidth, "hidden_size", config_.hidden_size);
    In(config_limits::kWidth, "intermediate_size", config_.intermediate_size);
    In(config_limits::kLayers, "num_hidden_layers", config_.num_hidden_layers);
    In(config_limits::kWidth, "num_attention_heads", config_.num_attention_heads);
    In(config_limits::kPositions, "max_position_embeddings", config_.max_position_embeddings);
    In(config_limits::kWidth, "head_dim", config_.head_dim);
  }

  void Groups() const {
    const int64_t heads = config_.num_attention_heads, groups = config_.num_key_value_heads;
    const std::string of_heads = NameOf("num_attention_heads") + " = " + Shown(heads);
    if (config_.attention == AttentionKind::kGqa || config_.NormedKeys() > 0) {
      In(Range<int64_t>{1, heads}, "num_key_value_heads", groups);
      Require(heads % groups == 0, "num_key_value_heads", Shown(groups),
              "it must divide " + of_heads);
    } else {
      Require(groups == heads, "num_key_value_heads", Shown(groups),
              "with attention " + Shown(Name(config_.attention)) + " it must equal " + of_heads);
    }
    Require(!config_.qk_norm_all_heads || config_.qk_norm, "qk_norm_all_heads", "true",
            "allowed only with qk_norm true");
    In(config_limits::kFactor, "attention_score_factor", config_.attention_score_factor);
  }

  void Windows() const {
    const bool mla = config_.attention == AttentionKind::kMla;
    constexpr const char* kGrouped = "allowed only with attention \"mha\" or \"gqa\"";
    const int64_t window = config_.sliding_window, layers = config_.num_hidden_layers;
    Require(!mla || window == 0, "sliding_window", Shown(window), kGrouped);
    In(config_limits::kOptionalWindow, "sliding_window", window);
    const std::vector<LayerType>& types = config_.layer_types;
    if (!types.empty()) {
      std::vector<std::string> names(types.size());
      std::transform(types.begin(), types.end(), names.begin(),
                     [](LayerType type) { return std::string(Name(type)); });
      if (window == 0) {
        Refuse("layer_types", ShownJson(names), "allowed only with " + NameOf("sliding_window"));
      }
      if (std::ssize(types) != layers) {
        Refuse("layer_types", ShownJson(names),
               "allowed: a list of " + NameOf("num_hidden_layers") + " = " + Shown(layers));
      }
    }
    const double cap = config_.attn_logit_softcapping;
    Require(!mla || cap == 0, "attn_logit_softcapping", Shown(cap), kGrouped);
    Softcap("attn_logit_softcapping", cap);
    Softcap("final_logit_softcapping", config_.final_logit_softcapping);
  }

  void Latents() const {
    if (config_.attention != AttentionKind::kMla) {
      RequireNoLatents();
      return;
    }
    if (config_.qk_norm) NormedKeys();
    const std::vector<int64_t>& ranks = config_.kv_lora_rank;
    if (std::ssize(ranks) != config_.num_hidden_layers) {
      Refuse("kv_lora_rank", ShownJson(ranks),
             "a list must hold one rank for each of " + NameOf("num_hidden_layers") + " = " +
                 Shown(config_.num_hidden_layers));
    }
    for (const int64_t rank : ranks) In(config_limits::kWidth, "kv_lora_rank", rank);
    In(config_limits::kOptionalWidth, "qk_rope_head_dim", config_.qk_rope_head_dim);
    In(config_limits::kOptionalWidth, "v_head_dim", config_.v_head_dim);
    In(config_limits::kOptionalWidth, "q_lora_rank", config_.q_lora_rank);
    if (config_.latent_norm_eps) {
      In(config_limits::kEpsilon, "latent_norm_eps", *config_.latent_norm_eps);
    }
  }

  void Positions() const {
    const bool rope = config_.position_embedding == PositionEmbedding::kRope;
    const bool mla = config_.attention == AttentionKind::kMla;
    if (config_.position_embedding == PositionEmbedding::kSinusoidal) {
      Require(config_.hidden_size % 2 == 0, "hidden_size", Shown(config_.hidden_size),
              "it must be even with sinusoidal positions");
    }
    if (rope && !mla) {
      Require(config_.head_dim % 2 == 0, "head_dim", Shown(config_.head_dim),
              "it must be even with rotary positions");
    }
    PartsThatRotate(rope && !mla);
    const int64_t width = config_.qk_rope_head_dim;
    if (mla && rope) {
      Require(width > 0 && width % 2 == 0, "qk_rope_head_dim", Shown(width),
              "with attention \"mla\" rotary positions need decoupled keys of an even width of at "
              "least 2, because rotating the keys themselves would break the reduction");
    }
    if (mla && !rope) {
      Require(width == 0, "qk_rope_head_dim", Shown(width),
              "it must be 0 unless position_embedding is \"rope\"");
    }
    if (rope) Rotations();
    PositionTable();
  }

  void Blocks() const {
    In(config_limits::kEpsilon, "norm_eps", config_.norm_eps);
    Require(!config_.norm_bias || config_.norm == NormKind::kLayerNorm, "norm_bias", "true",
            "allowed only with norm \"layer_norm\"");
    Require(config_.norm_inputs || config_.norm_outputs, "norm_inputs", "false",
            "allowed only with norm_outputs true");
    Require(!config_.use_parallel_residual || (config_.norm_inputs && !config_.norm_outputs),
            "use_parallel_residual", "true",
            "allowed only with norm_inputs true and norm_outputs false");
    Activation();
    In(config_limits::kFactor, "embedding_multiplier", config_.embedding_multiplier);
    In(config_limits::kFactor, "logit_multiplier", config_.logit_multiplier);
    if (config_.quantization) {
      Require(IsInteger(config_.quantization->format), "quantization_config",
              Shown(Name(config_.quantization->format)), "allowed: int8, int4");
    }
  }

  void Experts() const {
    const ExpertsConfig& experts = config_.experts;
    const int64_t count = experts.n_routed_experts;
    if (count == 0) return;
    In(config_limits::kExperts, "n_routed_experts", count);
    In(config_limits::kWidth, "moe_intermediate_size", experts.moe_intermediate_size);
    In(config_limits::kOptionalWidth, "shared_expert_intermediate_size",
       experts.shared_expert_intermediate_size);
    Require(!experts.shared_expert_gate || experts.shared_expert_intermediate_size > 0,
            "shared_expert_gate", "true", "allowed only with shared_expert_intermediate_size");
    ExpertGroups(experts);
    In(config_limits::kFactor, "routed_scaling_factor", experts.routed_scaling_factor);
    Require(!config_.mlp_bias, "mlp_bias", "true", "allowed only without experts");
    SparseLayers(experts.sparse_layers);
    int64_t layers = 0;
    for (int64_t i = 0; i < config_.num_hidden_layers; ++i) layers += config_.HasExperts(i) ? 1 : 0;
    const int64_t most = config_limits::kAllExperts / std::max<int64_t>(layers, 1);
    Require(count <= most, "n_routed_experts", Shown(count),
            "in " + Shown(layers) + " layers allowed: at most " + Shown(most));
  }

  void TrainingTexts() const {
    const std::vector<TrainingText>& texts = config_.training_texts;
    Require(texts.size() <= kMaxTrainingTexts, "training_texts",
            "a list of " + std::to_string(texts.size()), AllowedTrainingTexts());
    std::set<std::string_view> known;
    for (const auto& [sha256, held_out] : texts) {
      const bool valid = IsSha256(sha256) && held_out >= 0 && held_out < 1;
      if (valid && known.insert(sha256).second) continue;
      Refuse("training_texts", ShownJson({{"sha256", sha256}, {"held_out", held_out}}),
             valid ? "allowed: each text once" : AllowedTrainingTexts());
    }
  }

 private:
  // qk_norm under MLA.
  void NormedKeys() const {
    Require(!config_.qk_norm_all_heads, "qk_norm_all_heads", "true",
            "allowed only with attention \"mha\" or \"gqa\"");
    Require(config_.q_lora_rank == 0, "q_lora_rank", Shown(config_.q_lora_rank),
            "it must be 0 with attention \"mla\" and qk_norm true");
    Require(config_.head_grouping == HeadGrouping::kModular, "head_grouping",
            Shown(Name(config_.head_grouping)),
            "with attention \"mla\" and qk_norm true allowed: \"modular\"");
  }

  // 0: there is none.
  void Softcap(const char* field, double cap) const {
    if (cap != 0) In(config_limits::kFactor, field, cap);
  }

  void Activation() const {
    const HiddenAct act = config_.hidden_act;
    const auto require = [&](bool holds, const char* allowed) {
      Require(holds, "hidden_act", Shown(Name(act)), allowed);
    };
    switch (config_.mlp) {
      case MlpKind::kGelu:
        require(act == HiddenAct::kGelu || act == HiddenAct::kGeluExact,
                "mlp \"gelu\" allows \"gelu\", \"gelu_exact\"");
        break;
      case MlpKind::kSwiglu:
        require(act == HiddenAct::kSilu, "mlp \"swiglu\" allows \"silu\"");
        break;
      case MlpKind::kGeglu:
        require(act == HiddenAct::kGelu, "mlp \"geglu\" allows \"gelu\"");
        break;
      case MlpKind::kRelu2:
        require(act == HiddenAct::kRelu2, "mlp \"relu2\" allows \"relu2\"");
        break;
    }
  }

  void ExpertGroups(const ExpertsConfig& experts) const {
    const int64_t count = experts.n_routed_experts, groups = experts.n_group;
    const int64_t chosen = experts.num_experts_per_tok;
    const bool greedy = experts.topk_method == TopkMethod::kGreedy;
    const std::string of_count = NameOf("n_routed_experts") + " = " + Shown(count);
    In(Range<int64_t>{1, greedy ? 1 : count}, "n_group", groups);
    Require(count % groups == 0, "n_group", Shown(groups), "it must divide " + of_count);
    In(Range<int64_t>{1, groups}, "topk_group", experts.topk_group);
    const int64_t among = count / groups * experts.topk_group;
    Require(chosen >= 1 && chosen <= among, "num_experts_per_tok", Shown(chosen),
            "allowed: from 1 to the experts that a token chooses from, " + Shown(among) + " of " +
                of_count);
  }

  void SparseLayers(const std::vector<int64_t>& flags) const {
    if (flags.empty()) return;
    const int64_t layers = config_.num_hidden_layers;
    if (std::ssize(flags) != layers || !std::all_of(flags.begin(), flags.end(), IsFlag) ||
        std::find(flags.begin(), flags.end(), 1) == flags.end()) {
      Refuse("sparse_layers", ShownJson(flags),
             "allowed: 0 or 1 for each of " + NameOf("num_hidden_layers") + " = " + Shown(layers) +
                 ", 1 for at least one");
    }
  }

  static bool IsFlag(int64_t flag) { return flag == 0 || flag == 1; }

  // `allowed`: whether only some elements or some layers may rotate.
  void PartsThatRotate(bool allowed) const {
    constexpr const char* kOnly = "allowed only with rotary positions, not with attention \"mla\"";
    const int64_t rotated = config_.rotary_dim, layers = config_.num_hidden_layers;
    Require(allowed || rotated == 0, "rotary_dim", Shown(rotated), kOnly);
    Require(rotated >= 0 && rotated <= config_.head_dim && rotated % 2 == 0, "rotary_dim",
            Shown(rotated),
            "allowed: an even number from 0 to head_dim = " + Shown(config_.head_dim));
    const std::vector<int64_t>& rotates = config_.no_rope_layers;
    if (rotates.empty()) return;
    if (!allowed) Refuse("no_rope_layers", ShownJson(rotates), kOnly);
    if (std::ssize(rotates) != layers || !std::all_of(rotates.begin(), rotates.end(), IsFlag)) {
      Refuse("no_rope_layers", ShownJson(rotates),
             "allowed: 0 or 1 for each of " + NameOf("num_hidden_layers") + " = " + Shown(layers));
    }
  }

  std::string NameOf(const char* field) const {
    const auto named = origin_.names.find(field);
    return named == origin_.names.end() ? field : named->second;
  }

  [[noreturn]] void Refuse(const char* field, const std::string& value,
                           const std::string& allowed) const {
    throw LoadError(origin_.file + ": " + NameOf(field) + " is " + value + "; " + allowed);
  }

  void Require(bool holds, const char* field, const std::string& value,
               const std::string& allowed) const {
    if (!holds) Refuse(field, value, allowed);
  }

  template <typename T>
  void In(const Range<T>& range, const char* field, T value) const {
    Require(range.Contains(value), field, Shown(value), "allowed: " + Described(range));
  }

  void RequireNoLatents() const {
    const auto require = [&](bool holds, const char* field, const std::string& value) {
      Require(holds, field, value,
              "allowed only with attention \"mla\", not " + Shown(Name(config_.attention)));
    };
    require(config_.kv_lora_rank.empty(), "kv_lora_rank", ShownJson(config_.kv_lora_rank));
    require(config_.qk_rope_head_dim == 0, "qk_rope_head_dim", Shown(config_.qk_rope_head_dim));
    require(config_.v_head_dim == 0, "v_head_dim", Shown(config_.v_head_dim));
    require(!config_.kv_a_layernorm, "kv_a_layernorm", "true");
    require(config_.q_lora_rank == 0, "q_lora_rank", Shown(config_.q_lora_rank));
    require(!config_.latent_norm_eps, "latent_norm_eps",
            Shown(config_.latent_norm_eps.value_or(0)));
    require(!config_.latent_bias, "latent_bias", "true");
  }

  void Rotations() const {
    In(config_limits::kRopeTheta, "rope_theta", config_.rope_theta);
    if (const double local = config_.rope_local_base_freq; local != 0) {
      In(config_limits::kRopeTheta, "rope_local_base_freq", local);
      Require(config_.sliding_window > 0, "rope_local_base_freq", Shown(local),
              "allowed only with " + NameOf("sliding_window"));
    }
    In(config_limits::kFactor, "rope_attention_factor", config_.rope_attention_factor);
    const std::vector<double>& factors = config_.rope_factors;
    const int64_t pairs = config_.RotaryDim() / 2;
    const auto in_range = [](double factor) { return config_limits::kRopeFactor.Contains(factor); };
    if (factors.empty()) return;
    if (std::ssize(factors) != pairs || !std::all_of(factors.begin(), factors.end(), in_range)) {
      Refuse("rope_factors", ShownJson(factors),
             "allowed: a list of " + Shown(pairs) + ", one for each rotated pair, each " +
                 Described(config_limits::kRopeFactor));
    }
  }

  // Loading bounds rotary tables (ServedPositions in engine/loading/loaded_model.h).
  void PositionTable() const {
    if (config_.position_embedding != PositionEmbedding::kSinusoidal) return;
    const int64_t most = config_limits::kPositionTable / config_.hidden_size;
    Require(config_.max_position_embeddings <= most, "max_position_embeddings",
            Shown(config_.max_position_embeddings),
            "with sinusoidal positions of width " + Shown(config_.hidden_size) +
                " allowed: " + Described(Range<int64_t>{config_limits::kPositions.low, most}));
  }

  const ModelConfig& config_;
  const ConfigOrigin& origin_;
};

}  // namespace

void Validate(const ModelConfig& config, const ConfigOrigin& origin) {
  const Validator validator(config, origin);
  validator.Sizes();
  validator.Groups();
  validator.Windows();
  validator.Latents();
  validator.Positions();
  validator.Blocks();
  validator.Experts();
  validator.TrainingTexts();
}

std::string AllowedTrainingTexts() {
  return "allowed: a list of at most " + std::to_string(kMaxTrainingTexts) +
         " of {\"sha256\": 64 digits 0 to f, \"held_out\": from 0 to less than 1}";
}

}  // namespace triptych
