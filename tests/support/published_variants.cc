#include "tests/support/published_variants.h"

#include <ATen/ATen.h>

#include <cmath>
#include <stdexcept>
#include <vector>

#include "tests/support/published_experts.h"

namespace triptych::published {
namespace {

// granitemoe is granite, except for its experts.
std::string VariantOf(const std::string& family) {
  return family == "granitemoe" ? "granite" : family;
}

class VariantDecoder {
 public:
  VariantDecoder(const Json& config, const Tensors& tensors)
      : config_(config),
        tensors_(tensors),
        family_(VariantOf(config.at("model_type").get<std::string>())),
        heads_(Size(config, "num_attention_heads")),
        groups_(Size(config, "num_key_value_heads", DefaultGroups(), heads_)),
        d_(Size(config, "head_dim", Size(config, "hidden_size") / heads_)) {
    if (Is("cohere") && Flag("use_qk_norm")) throw std::invalid_argument("use_qk_norm");
    if (Is("stablelm") && Flag("qk_layernorm")) throw std::invalid_argument("qk_layernorm");
  }

  at::Tensor Logits(const at::Tensor& ids) const {
    const at::Tensor embedding = Find(tensors_, "model.embed_tokens.weight");
    at::Tensor x = EmbeddingScale() * embedding.index_select(0, ids);
    for (int64_t layer = 0; layer < Size(config_, "num_hidden_layers"); ++layer) {
      x = Block(layer, x);
    }
    x = Normalize("model.norm", x);
    const bool tied = Get(config_, "tie_word_embeddings", IsTiedByDefault());
    const at::Tensor logits = x.matmul((tied ? embedding : Find(tensors_, "lm_head.weight")).t());
    if (HasGemma2Blocks()) {
      const double cap = Cap("final_logit_softcapping", Is("gemma2") ? 30 : 0);
      return cap == 0 ? logits : cap * (logits / cap).tanh();
    }
    if (Is("granite")) return logits / Get(config_, "logits_scaling", 1.0);
    return Is("cohere") ? logits * Get(config_, "logit_scale", 0.0625) : logits;
  }

 private:
  bool Is(const char* family) const { return family_ == family; }
  bool HasGemma2Blocks() const { return Is("gemma2") || Is("gemma3_text"); }
  bool IsGemma() const { return Is("gemma") || HasGemma2Blocks(); }
  // A soft-cap; 0 if it is null.
  double Cap(const char* field, double absent) const {
    return config_.contains(field) ? Get(config_, field, 0.0) : absent;
  }
  bool Flag(const char* field) const { return Get(config_, field, false); }
  bool IsTiedByDefault() const {
    return Is("cohere") || IsGemma() || Is("smollm3") || Is("starcoder2");
  }
  // The default of an absent num_key_value_heads.
  int64_t DefaultGroups() const {
    const int64_t heads = Size(config_, "num_attention_heads");
    if (Is("gemma")) return 16;
    if (HasGemma2Blocks()) return 4;
    if (Is("smollm3")) return 4;
    if (Is("stablelm")) return 32;
    return Is("starcoder2") ? 2 : heads;
  }

  double EmbeddingScale() const {
    if (Is("granite")) return Get(config_, "embedding_multiplier", 1.0);
    if (!IsGemma()) return 1;
    // Published code computes the root in the dtype of the weights.
    const at::Tensor root =
        at::scalar_tensor(std::sqrt(config_.at("hidden_size").get<double>()), at::kDouble);
    const bool rounded = Get<std::string>(config_, "torch_dtype", "float32") == "bfloat16";
    return rounded ? root.to(at::kBFloat16).to(at::kDouble).item<double>() : root.item<double>();
  }

  at::Tensor Normalize(const std::string& name, const at::Tensor& x) const {
    const at::Tensor weight = Find(tensors_, name + ".weight");
    if (Is("cohere")) {
      return LayerNorm(x, weight, at::zeros_like(weight), Get(config_, "layer_norm_eps", 1e-5));
    }
    if (Is("stablelm") || Is("starcoder2")) {
      const char* eps = Is("stablelm") ? "layer_norm_eps" : "norm_epsilon";
      return LayerNorm(x, weight, Find(tensors_, name + ".bias"), Get(config_, eps, 1e-5));
    }
    const double default_eps = Is("olmo2") || Is("phi3") ? 1e-5 : 1e-6;
    return RmsNorm(x, IsGemma() ? 1 + weight : weight, Get(config_, "rms_norm_eps", default_eps));
  }

  at::Tensor Apply(const std::string& name, const at::Tensor& x, bool bias) const {
    const at::Tensor y = x.matmul(Find(tensors_, name + ".weight").t());
    return bias ? y + Find(tensors_, name + ".bias") : y;
  }

  at::Tensor Block(int64_t layer, const at::Tensor& x) const {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    if (Is("olmo2")) {
      const at::Tensor y =
          x + Normalize(prefix + "post_attention_layernorm", Attention(layer, prefix, x));
      return y + Normalize(prefix + "post_feedforward_layernorm", Mlp(prefix + "mlp.", y));
    }
    const at::Tensor normal = Normalize(prefix + "input_layernorm", x);
    if (HasGemma2Blocks()) {
      const at::Tensor y =
          x + Normalize(prefix + "post_attention_layernorm", Attention(layer, prefix, normal));
      const at::Tensor z = Normalize(prefix + "pre_feedforward_layernorm", y);
      return y + Normalize(prefix + "post_feedforward_layernorm", Mlp(prefix + "mlp.", z));
    }
    const at::Tensor attended = Attention(layer, prefix, normal);
    if (Is("cohere") || (Is("stablelm") && Flag("use_parallel_residual"))) {
      return x + attended + Mlp(prefix + "mlp.", normal);
    }
    const double branch = Is("granite") ? Get(config_, "residual_multiplier", 1.0) : 1;
    const at::Tensor y = x + branch * attended;
    const at::Tensor z = Normalize(prefix + "post_attention_layernorm", y);
    return y + branch * (ExpertsOf(config_, layer) > 0 ? MixExperts(config_, tensors_, prefix, z)
                                                       : Mlp(prefix + "mlp.", z));
  }

  // Whether a layer has the window, if there is one.
  bool Slides(int64_t layer) const {
    if (Is("phi3") || Is("starcoder2")) return true;
    if (Is("smollm3") && !Flag("use_sliding_window")) return false;
    if (!Is("smollm3") && !HasGemma2Blocks()) return false;
    if (Has(config_, "layer_types")) {
      return config_.at("layer_types").at(static_cast<size_t>(layer)) == "sliding_attention";
    }
    if (Is("smollm3")) return !Rotates(layer);
    return (layer + 1) % (Is("gemma2") ? 2 : Size(config_, "sliding_window_pattern", 6)) != 0;
  }

  // Number of positions that a layer's attention sees, including the current one.
  int64_t Window(int64_t layer) const {
    if (!Slides(layer)) return kNoWindow;
    return HasGemma2Blocks() ? Size(config_, "sliding_window", 4096, kNoWindow)
                             : Size(config_, "sliding_window", kNoWindow);
  }

  bool Rotates(int64_t layer) const {
    if (!Is("smollm3")) return true;
    if (Has(config_, "no_rope_layers")) {
      return config_.at("no_rope_layers").at(static_cast<size_t>(layer)) != 0;
    }
    return (layer + 1) % Size(config_, "no_rope_layer_interval", 4) != 0;
  }

  // The first elements of each head turn. x: [length, heads, d]
  at::Tensor RotatePart(int64_t layer, const at::Tensor& x) const {
    if (!Rotates(layer)) return x;
    const bool partly = Is("phi3") || Is("stablelm");
    const double share =
        partly ? Get(config_, "partial_rotary_factor", Is("phi3") ? 1.0 : 0.25) : 1.0;
    const auto dim = static_cast<int64_t>(static_cast<double>(d_) * share);
    Json turning = config_;
    if (Is("gemma3_text")) {
      const Json kinds = Get<Json>(config_, "rope_parameters", Json::object());
      if (kinds.contains("full_attention")) {
        turning["rope_parameters"] =
            kinds.at(Slides(layer) ? "sliding_attention" : "full_attention");
      } else if (Slides(layer)) {
        turning = {{"rope_theta", Get(config_, "rope_local_base_freq", 10000.0)}};
      }
    }
    const Rotary rotary = RotaryOf(turning, dim, x.size(0));
    return at::cat({Rotate(rotary, x.slice(2, 0, dim), Is("cohere")), x.slice(2, dim)}, 2);
  }

  // x: [length, D] -> [length, D]
  at::Tensor Attention(int64_t layer, const std::string& prefix, const at::Tensor& x) const {
    const std::string self = prefix + "self_attn.";
    const bool starcoder_bias = Is("starcoder2") && Get(config_, "use_bias", true);
    const bool any_bias = (!Is("phi3") && Flag("attention_bias")) || starcoder_bias;
    const bool input_bias = any_bias || (Is("stablelm") && Flag("use_qkv_bias"));
    at::Tensor q, k, v;
    if (Is("phi3")) {
      const std::vector<at::Tensor> parts =
          Apply(self + "qkv_proj", x, false)
              .split_with_sizes({heads_ * d_, groups_ * d_, groups_ * d_}, 1);
      q = parts[0], k = parts[1], v = parts[2];
    } else {
      q = Apply(self + "q_proj", x, input_bias);
      k = Apply(self + "k_proj", x, input_bias);
      v = Apply(self + "v_proj", x, input_bias);
    }
    if (Is("olmo2")) {
      q = Normalize(self + "q_norm", q);
      k = Normalize(self + "k_norm", k);
    }
    q = q.view({-1, heads_, d_}), k = k.view({-1, groups_, d_});
    if (Is("gemma3_text")) {
      q = Normalize(self + "q_norm", q);
      k = Normalize(self + "k_norm", k);
    }
    double scale = Is("granite") ? Get(config_, "attention_multiplier", 1.0)
                                 : 1 / std::sqrt(static_cast<double>(d_));
    if (HasGemma2Blocks()) scale = 1 / std::sqrt(Get(config_, "query_pre_attn_scalar", 256.0));
    const double softcap =
        HasGemma2Blocks() ? Cap("attn_logit_softcapping", Is("gemma2") ? 50 : 0) : 0;
    const at::Tensor attended = Attend(RotatePart(layer, q), RotatePart(layer, k),
                                       v.reshape({-1, groups_, d_}), scale, Window(layer), softcap);
    return Apply(self + "o_proj", attended, any_bias);
  }

  at::Tensor Mlp(const std::string& mlp, const at::Tensor& x) const {
    if (Is("starcoder2")) {
      const bool bias = Get(config_, "use_bias", true);
      const auto act = Get<std::string>(config_, "hidden_act", "gelu_pytorch_tanh");
      return Apply(mlp + "c_proj", Activate(act, Apply(mlp + "c_fc", x, bias)), bias);
    }
    if (Is("phi3")) {
      const std::vector<at::Tensor> halves = Apply(mlp + "gate_up_proj", x, false).chunk(2, 1);
      const auto act = Get<std::string>(config_, "hidden_act", "silu");
      return Apply(mlp + "down_proj", Activate(act, halves[0]) * halves[1], false);
    }
    const bool bias = (Is("granite") || Is("smollm3")) && Flag("mlp_bias");
    const auto act = IsGemma() ? Get<std::string>(config_, "hidden_activation", "gelu_pytorch_tanh")
                               : Get<std::string>(config_, "hidden_act", "silu");
    const at::Tensor gate = Activate(act, Apply(mlp + "gate_proj", x, bias));
    return Apply(mlp + "down_proj", gate * Apply(mlp + "up_proj", x, bias), bias);
  }

  const Json& config_;
  const Tensors& tensors_;
  const std::string family_;
  const int64_t heads_, groups_, d_;
};

}  // namespace

bool IsVariant(const std::string& family) {
  return family == "cohere" || family == "gemma" || family == "gemma2" || family == "gemma3_text" ||
         VariantOf(family) == "granite" || family == "olmo2" || family == "phi3" ||
         family == "smollm3" || family == "stablelm" || family == "starcoder2";
}

at::Tensor VariantLogits(const Json& config, const Tensors& tensors, const at::Tensor& ids) {
  return VariantDecoder(config, tensors).Logits(ids);
}

}  // namespace triptych::published
