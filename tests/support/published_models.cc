#include "tests/support/published_models.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "tests/support/published_experts.h"
#include "tests/support/published_variants.h"

namespace triptych::published {
namespace {

// Epsilon of the latents' norms: published code ignores the config's.
constexpr double kLatentNormEps = 1e-6;

// The family whose definition a model has, except for its experts.
std::string BaseOf(const std::string& family) {
  if (family == "kimi_k2" || family == "glm4_moe_lite") return "deepseek_v3";
  if (family == "youtu_llm") return "youtu";
  if (family == "qwen2_moe") return "qwen2";
  return family == "qwen3_moe" ? "qwen3" : family;
}

bool IsLatent(const std::string& family) {
  return family == "deepseek_v2" || family == "deepseek_v3" || family == "minicpm3" ||
         family == "youtu" || family == "plm";
}

// Decoder of llama, mistral, mixtral, olmoe, qwen2, qwen3 and the latent families.
class RotaryDecoder {
 public:
  RotaryDecoder(const Json& config, const Tensors& tensors)
      : config_(config),
        tensors_(tensors),
        family_(BaseOf(config.at("model_type").get<std::string>())),
        norm_eps_(Get(config, "rms_norm_eps", 1e-6)) {}

  at::Tensor Logits(const at::Tensor& ids) const {
    const auto layers = static_cast<double>(Size(config_, "num_hidden_layers"));
    double embedding_scale = 1, branch_scale = 1, output_scale = 1;
    if (family_ == "minicpm3") {
      embedding_scale = config_.at("scale_emb").get<double>();
      branch_scale = config_.at("scale_depth").get<double>() / std::sqrt(layers);
      output_scale =
          config_.at("dim_model_base").get<double>() / config_.at("hidden_size").get<double>();
    }

    const at::Tensor embedding = Find(tensors_, "model.embed_tokens.weight");
    at::Tensor x = embedding_scale * embedding.index_select(0, ids);
    for (int64_t layer = 0; layer < Size(config_, "num_hidden_layers"); ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      const std::string self = prefix + "self_attn.";
      const at::Tensor y = Normalize(prefix + "input_layernorm", x, norm_eps_);
      x = x + branch_scale * (IsLatent(family_) ? AttendLatent(self, y)
                                                : AttendGrouped(self, y, Window(layer)));
      const at::Tensor z = Normalize(prefix + "post_attention_layernorm", x, norm_eps_);
      x = x + branch_scale * (ExpertsOf(config_, layer) > 0
                                  ? MixExperts(config_, tensors_, prefix, z)
                                  : Mlp(prefix + "mlp.", z));
    }
    x = output_scale * Normalize("model.norm", x, norm_eps_);
    const bool tied = Get(config_, "tie_word_embeddings",
                          family_ == "minicpm3" || family_ == "youtu" || family_ == "plm");
    return x.matmul((tied ? embedding : Find(tensors_, "lm_head.weight")).t());
  }

 private:
  at::Tensor Normalize(const std::string& name, const at::Tensor& x, double eps) const {
    return RmsNorm(x, Find(tensors_, name + ".weight"), eps);
  }

  at::Tensor Apply(const std::string& name, const at::Tensor& x, bool bias) const {
    const at::Tensor y = x.matmul(Find(tensors_, name + ".weight").t());
    return bias ? y + Find(tensors_, name + ".bias") : y;
  }

  bool Flag(const std::string& field) const { return Get(config_, field, false); }

  // Number of positions that a layer's attention sees, including the current one.
  int64_t Window(int64_t layer) const {
    if (family_ == "mistral") return Size(config_, "sliding_window", 4096, kNoWindow);
    if (family_ == "mixtral") return Size(config_, "sliding_window", kNoWindow);
    if (family_ == "llama" || !Flag("use_sliding_window")) return kNoWindow;
    const bool sliding =
        Has(config_, "layer_types")
            ? config_.at("layer_types").at(static_cast<size_t>(layer)) == "sliding_attention"
            : layer >= Size(config_, "max_window_layers", 28);
    return sliding ? Size(config_, "sliding_window", 4096, kNoWindow) : kNoWindow;
  }

  // x: [length, D] -> [length, D].
  at::Tensor AttendGrouped(const std::string& self, const at::Tensor& x, int64_t window) const {
    const bool qwen3 = family_ == "qwen3";
    const int64_t heads = Size(config_, "num_attention_heads");
    const int64_t default_groups = family_ == "llama" ? heads : family_ == "mistral" ? 8 : 32;
    const int64_t groups = Size(config_, "num_key_value_heads", default_groups, heads);
    const int64_t d = Size(config_, "head_dim", qwen3 ? 128 : Size(config_, "hidden_size") / heads);
    const bool olmoe = family_ == "olmoe";
    const bool any_bias = (family_ == "llama" || olmoe || qwen3) && Flag("attention_bias");
    const bool input_bias = (family_ == "qwen2" && Get(config_, "qkv_bias", true)) || any_bias;
    const auto by_head = [&](const char* name, const char* norm, int64_t count) {
      const at::Tensor y = Apply(self + name, x, input_bias);
      return (olmoe ? Normalize(self + norm, y, norm_eps_) : y).view({-1, count, d});
    };

    at::Tensor q = by_head("q_proj", "q_norm", heads);
    at::Tensor k = by_head("k_proj", "k_norm", groups);
    const at::Tensor v = Apply(self + "v_proj", x, input_bias).view({-1, groups, d});
    if (qwen3) {
      q = Normalize(self + "q_norm", q, norm_eps_);
      k = Normalize(self + "k_norm", k, norm_eps_);
    }
    const Rotary rotary = RotaryOf(config_, d, x.size(0));
    const at::Tensor attended = Attend(Rotate(rotary, q, false), Rotate(rotary, k, false), v,
                                       1 / std::sqrt(static_cast<double>(d)), window);
    return Apply(self + "o_proj", attended, any_bias);
  }

  // Multi-head latent attention (section 2.1 of https://arxiv.org/abs/2405.04434), keys and values
  // expanded. x: [length, D] -> [length, D].
  at::Tensor AttendLatent(const std::string& self, const at::Tensor& x) const {
    const bool minicpm = family_ == "minicpm3";
    const int64_t heads = Size(config_, "num_attention_heads");
    const bool plm = family_ == "plm";
    const int64_t query_rank = Size(config_, "q_lora_rank", minicpm ? 768 : plm ? 0 : 1536, 0);
    const int64_t rank = Size(config_, "kv_lora_rank", minicpm ? 256 : 512);
    const int64_t d_nope = Size(config_, "qk_nope_head_dim", minicpm ? 64 : 128);
    const int64_t d_rope = Size(config_, "qk_rope_head_dim", minicpm ? 32 : 64);
    const int64_t d_v =
        Size(config_, "v_head_dim", minicpm ? Size(config_, "hidden_size") / heads : 128);
    const bool bias = Flag("attention_bias");
    const bool interleaved =
        family_ == "deepseek_v2" || (!minicpm && Get(config_, "rope_interleave", true));

    const at::Tensor query_input =
        query_rank == 0
            ? x
            : Normalize(self + "q_a_layernorm", Apply(self + "q_a_proj", x, bias), kLatentNormEps);
    const bool transmla = config_.contains("qk_latent_layernorm");
    const bool query_bias = transmla && bias && query_rank == 0;
    const at::Tensor q =
        Apply(self + (query_rank == 0 ? "q_proj" : "q_b_proj"), query_input, query_bias)
            .view({-1, heads, d_nope + d_rope});
    const at::Tensor projected = Apply(self + "kv_a_proj_with_mqa", x, bias);
    at::Tensor latent = projected.slice(1, 0, rank);
    if (Get(config_, "qk_latent_layernorm", true)) {
      latent = Normalize(self + "kv_a_layernorm", latent, kLatentNormEps);
    }
    const at::Tensor expanded =
        Apply(self + "kv_b_proj", latent, false).view({-1, heads, d_nope + d_v});

    const Rotary rotary = RotaryOf(config_, d_rope, x.size(0));
    const at::Tensor q_rope = Rotate(rotary, q.slice(2, d_nope), interleaved);
    const at::Tensor k_rope =  // one for all heads
        Rotate(rotary, projected.slice(1, rank).unsqueeze(1), interleaved);
    double scale = 1 / std::sqrt(static_cast<double>(d_nope + d_rope));
    const Json scaling = Scaling(config_);
    if (const double weight = plm ? 0 : Get(scaling, "mscale_all_dim", 0.0); weight != 0) {
      scale *= std::pow(YarnMagnitude(scaling.at("factor").get<double>(), weight), 2);
    }
    const at::Tensor attended =
        Attend(at::cat({q.slice(2, 0, d_nope), q_rope}, 2),
               at::cat({expanded.slice(2, 0, d_nope), k_rope.expand({-1, heads, d_rope})}, 2),
               expanded.slice(2, d_nope), scale, kNoWindow);
    return Apply(self + "o_proj", attended, bias && !transmla);
  }

  at::Tensor Mlp(const std::string& mlp, const at::Tensor& x) const {
    const bool may_have_bias =
        family_ == "llama" || family_ == "deepseek_v2" || family_ == "minicpm3";
    const bool bias = may_have_bias && Flag("mlp_bias");
    if (family_ == "plm") {
      const at::Tensor inner = Activate(Get<std::string>(config_, "hidden_act", "relu2"),
                                        Apply(mlp + "up_proj", x, bias));
      return Apply(mlp + "down_proj", inner, bias);
    }
    const at::Tensor gate = Activate(Get<std::string>(config_, "hidden_act", "silu"),
                                     Apply(mlp + "gate_proj", x, bias));
    return Apply(mlp + "down_proj", gate * Apply(mlp + "up_proj", x, bias), bias);
  }

  const Json& config_;
  const Tensors& tensors_;
  const std::string family_;
  const double norm_eps_;
};

class Gpt2Decoder {
 public:
  Gpt2Decoder(const Json& config, const Tensors& tensors)
      : config_(config),
        tensors_(tensors),
        prefix_(tensors.contains("transformer.wte.weight") ? "transformer." : "") {}

  at::Tensor Logits(const at::Tensor& ids) const {
    const at::Tensor embedding = Find(tensors_, prefix_ + "wte.weight");
    const at::Tensor positions = Find(tensors_, prefix_ + "wpe.weight");
    at::Tensor x = embedding.index_select(0, ids) + positions.slice(0, 0, ids.size(0));
    for (int64_t layer = 0; layer < Size(config_, "n_layer"); ++layer) {
      const std::string block = prefix_ + "h." + std::to_string(layer) + ".";
      x = x + Attention(layer, block + "attn.", Normalize(block + "ln_1", x));
      const at::Tensor inner =
          Activate(Get<std::string>(config_, "activation_function", "gelu_new"),
                   Apply(block + "mlp.c_fc", Normalize(block + "ln_2", x)));
      x = x + Apply(block + "mlp.c_proj", inner);
    }
    const bool tied = Get(config_, "tie_word_embeddings", true);
    return Normalize(prefix_ + "ln_f", x)
        .matmul((tied ? embedding : Find(tensors_, "lm_head.weight")).t());
  }

 private:
  at::Tensor Normalize(const std::string& name, const at::Tensor& x) const {
    return LayerNorm(x, Find(tensors_, name + ".weight"), Find(tensors_, name + ".bias"),
                     Get(config_, "layer_norm_epsilon", 1e-5));
  }

  at::Tensor Apply(const std::string& name, const at::Tensor& x) const {
    return x.matmul(Find(tensors_, name + ".weight")) + Find(tensors_, name + ".bias");
  }

  at::Tensor Attention(int64_t layer, const std::string& attn, const at::Tensor& x) const {
    const int64_t heads = Size(config_, "n_head");
    const int64_t d = x.size(1) / heads;
    double scale = 1;
    if (Get(config_, "scale_attn_weights", true)) scale /= std::sqrt(static_cast<double>(d));
    if (Get(config_, "scale_attn_by_inverse_layer_idx", false)) {
      scale /= static_cast<double>(layer + 1);
    }
    const std::vector<at::Tensor> qkv = Apply(attn + "c_attn", x).chunk(3, 1);
    const auto by_head = [&](const at::Tensor& y) { return y.reshape({-1, heads, d}); };
    return Apply(attn + "c_proj",
                 Attend(by_head(qkv[0]), by_head(qkv[1]), by_head(qkv[2]), scale, kNoWindow));
  }

  const Json& config_;
  const Tensors& tensors_;
  const std::string prefix_;
};

}  // namespace

at::Tensor Logits(const Json& config, const Tensors& tensors, const std::vector<int64_t>& ids) {
  const at::Tensor tokens = at::tensor(at::ArrayRef<int64_t>(ids), at::kLong);
  const auto family = config.at("model_type").get<std::string>();
  if (family == "gpt2") return Gpt2Decoder(config, tensors).Logits(tokens);
  if (family == "llama" || family == "mistral" || family == "mixtral" || family == "olmoe" ||
      BaseOf(family) == "qwen2" || BaseOf(family) == "qwen3" || IsLatent(BaseOf(family))) {
    return RotaryDecoder(config, tensors).Logits(tokens);
  }
  if (IsVariant(family)) return VariantLogits(config, tensors, tokens);
  throw std::invalid_argument("model_type " + family);
}

}  // namespace triptych::published
