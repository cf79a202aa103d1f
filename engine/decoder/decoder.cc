#include "engine/decoder/decoder.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "engine/attention/grouped_attention.h"
#include "engine/attention/latent_attention.h"
#include "engine/attention/rms_norm.h"
#include "engine/kernels/activation.h"
#include "engine/kernels/norm.h"
#include "engine/kernels/residual_stream.h"
#include "engine/kernels/threads.h"

namespace triptych {
namespace {

at::Tensor Find(const Weights& weights, const std::string& name) {
  const auto found = weights.find(name);
  return found == weights.end() ? at::Tensor() : found->second;
}

Linear FindLinear(const Weights& weights, const std::string& name) {
  return {.weight = Find(weights, name + ".weight"), .bias = Find(weights, name + ".bias")};
}

// sin(p / 10000^(2i/D)) at 2i, cos at 2i+1 (Vaswani et al. 2017, arXiv:1706.03762).
at::Tensor SinusoidalPositions(int64_t positions, int64_t width) {
  const at::Tensor exponents = at::arange(0, width, 2, at::kDouble) / static_cast<double>(width);
  const at::Tensor frequencies = at::pow(at::scalar_tensor(10000.0, at::kDouble), -exponents);
  const at::Tensor table = at::empty({positions, width}, at::kDouble);
  constexpr int64_t kSlice = 4096;  // the angles of one slice are all that is held beside the table
  for (int64_t first = 0; first < positions; first += kSlice) {
    const int64_t end = std::min(first + kSlice, positions);
    const at::Tensor angles = at::arange(first, end, at::kDouble).unsqueeze(1) * frequencies;
    table.narrow(0, first, end - first)
        .copy_(at::stack({angles.sin(), angles.cos()}, -1).flatten(1));
  }
  return table;
}

void CheckIndices(std::span<const int64_t> indices, int64_t size, const char* what) {
  for (const int64_t index : indices) {
    if (index >= 0 && index < size) continue;
    throw std::out_of_range(what + (" " + std::to_string(index)) + "; allowed: 0 to " +
                            std::to_string(size - 1));
  }
}

LatentShape ShapeOf(const ModelConfig& config, int64_t layer) {
  return {.heads = config.num_attention_heads,
          .d_qk = config.head_dim,
          .d_v = config.head_dim,
          .rank = config.kv_lora_rank[layer],
          .d_rope = config.qk_rope_head_dim,
          .norm_eps = config.norm_eps};
}

}  // namespace

Decoder::Decoder(const ModelConfig& config, const Weights& weights, at::ScalarType compute_dtype)
    : config_(config),
      compute_dtype_(compute_dtype),
      residual_dtype_(compute_dtype == at::kDouble ? at::kDouble : at::kFloat),
      token_embedding_(weights.at("model.embed_tokens.weight")),
      final_norm_{Find(weights, "model.norm.weight"), Find(weights, "model.norm.bias")},
      lm_head_{config.tie_word_embeddings ? token_embedding_ : weights.at("lm_head.weight"), {}} {
  if (config.position_embedding == PositionEmbedding::kLearned) {
    position_embedding_ = weights.at("model.embed_positions.weight");
  } else if (config.position_embedding == PositionEmbedding::kSinusoidal) {
    position_embedding_ =
        SinusoidalPositions(config.max_position_embeddings, config.hidden_size).to(device());
  }
  Rotary rotary;  // the layers share its tables
  if (config_.position_embedding == PositionEmbedding::kRope) {
    const bool mla = config_.attention == AttentionKind::kMla;
    rotary =
        Rotary(config_.max_position_embeddings, mla ? config_.qk_rope_head_dim : config_.head_dim,
               config_.rope_theta, device());
  }
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layers_.push_back(MakeLayer(weights, rotary, i));
  }
}

Decoder::Layer Decoder::MakeLayer(const Weights& weights, const Rotary& rotary,
                                  int64_t index) const {
  const std::string prefix = LayerPrefix(index);
  const std::string self = AttentionPrefix(index);
  const auto norm = [&](const std::string& name) {
    return Norm{Find(weights, prefix + name + ".weight"), Find(weights, prefix + name + ".bias")};
  };
  Layer layer;
  layer.attention_norm = norm("input_layernorm");
  layer.mlp_norm = norm("post_attention_layernorm");
  layer.gate = FindLinear(weights, prefix + "mlp.gate_proj");
  layer.up = FindLinear(weights, prefix + "mlp.up_proj");
  layer.down = FindLinear(weights, prefix + "mlp.down_proj");
  if (config_.attention == AttentionKind::kMla) {
    layer.attention = std::make_unique<LatentAttention>(
        ShapeOf(config_, index),
        LatentWeights{.q = FindLinear(weights, self + "q_proj"),
                      .kv_a = FindLinear(weights, self + "kv_a_proj_with_mqa"),
                      .latent_norm = Find(weights, self + "kv_a_layernorm.weight"),
                      .kv_b = weights.at(self + "kv_b_proj.weight"),
                      .o = FindLinear(weights, self + "o_proj")},
        rotary);
  } else {
    layer.attention = std::make_unique<GroupedAttention>(
        config_.num_attention_heads, config_.num_key_value_heads,
        GroupedAttention::Weights{.q = FindLinear(weights, self + "q_proj"),
                                  .k = FindLinear(weights, self + "k_proj"),
                                  .v = FindLinear(weights, self + "v_proj"),
                                  .o = FindLinear(weights, self + "o_proj")},
        rotary);
  }
  return layer;
}

at::Tensor Decoder::Embed(const at::Tensor& ids, const at::Tensor& positions) const {
  const at::Tensor tokens = at::embedding(token_embedding_, ids).to(residual_dtype_);
  if (!position_embedding_.defined()) return tokens;
  return tokens + at::embedding(position_embedding_, positions).to(residual_dtype_);
}

at::Tensor Decoder::Normalize(const Norm& norm, const at::Tensor& x) const {
  if (config_.norm == NormKind::kRmsNorm) return RmsNorm(x, norm.weight, config_.norm_eps);
  const at::Tensor bias = norm.bias.defined() ? norm.bias.to(x.scalar_type()) : at::Tensor();
  return at::layer_norm(x, {x.size(-1)}, norm.weight.to(x.scalar_type()), bias, config_.norm_eps);
}

at::Tensor Decoder::Mlp(const Layer& layer, const at::Tensor& x) const {
  switch (config_.hidden_act) {
    case HiddenAct::kSilu:
      return layer.down(at::silu(layer.gate(x)) * layer.up(x));
    case HiddenAct::kGelu:
      return layer.down(at::gelu(layer.up(x), "tanh"));
    case HiddenAct::kGeluExact:
      return layer.down(at::gelu(layer.up(x), "none"));
  }
  return {};
}

at::Tensor Decoder::Forward(const at::Tensor& ids, Dropout* dropout,
                            std::vector<at::Tensor>* attention_inputs) const {
  const auto attend = [&](int64_t layer, const at::Tensor& h) {
    if (attention_inputs != nullptr) attention_inputs->push_back(h);
    return layers_[layer].attention->Dense(h, h, /*causal=*/true);
  };
  const auto add = [&](const at::Tensor& x, const at::Tensor& branch) {
    return x + (dropout != nullptr ? dropout->Apply(branch) : branch);
  };
  const at::Tensor positions = at::arange(ids.size(1), ids.options());
  return lm_head_(Normalize(final_norm_, Blocks(Embed(ids, positions), attend, add)));
}

template <typename Attend, typename Add>
at::Tensor Decoder::Blocks(at::Tensor x, const Attend& attend, const Add& add) const {
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    const Layer& layer = layers_[i];
    x = add(x, attend(i, Normalize(layer.attention_norm, x).to(compute_dtype_)));
    x = add(x, Mlp(layer, Normalize(layer.mlp_norm, x).to(compute_dtype_)));
  }
  return x;
}

std::vector<ReducedForm> Decoder::reduced_forms() const {
  std::vector<ReducedForm> forms;
  if (config_.attention != AttentionKind::kMla) return forms;
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    forms.push_back(SmallerForm(ShapeOf(config_, i), config_.hidden_size));
  }
  return forms;
}

void Decoder::PrepareToServe(std::optional<int64_t> vanilla_from) {
  if (!ServesOnKernels(token_embedding_)) {
    for (Layer& layer : layers_) layer.attention->PrepareToServe(/*vanilla=*/false);
    return;
  }
  const auto pack = [](Norm& norm) {
    norm.packed_weight = ToFloats(norm.weight);
    norm.packed_bias = ToFloats(norm.bias);
  };
  std::vector<LatentShape> factored;
  const std::vector<ReducedForm> forms = reduced_forms();
  for (size_t i = 0; i < forms.size(); ++i) {
    if (forms[i] == ReducedForm::kFactored)
      factored.push_back(ShapeOf(config_, static_cast<int64_t>(i)));
  }
  vanilla_from_ = VanillaCrossover(factored, kExpansionCost);
  if (vanilla_from_ != kNeverVanilla) vanilla_from_ = vanilla_from.value_or(vanilla_from_);
  const bool vanilla = vanilla_from_ < config_.max_position_embeddings;
  token_embedding_ = token_embedding_.contiguous();
  packed_positions_ = ToFloats(position_embedding_);
  packed_lm_head_ = Pack({lm_head_});
  pack(final_norm_);
  for (Layer& layer : layers_) {
    pack(layer.attention_norm);
    pack(layer.mlp_norm);
    layer.attention->PrepareToServe(vanilla);
    layer.packed_in = Pack({layer.gate, layer.up});
    layer.packed_down = Pack({layer.down});
  }
}

void Decoder::DropDense() {
  for (Layer& layer : layers_) layer.attention->DropDense();
  if (!ServesOnKernels(token_embedding_)) return;
  position_embedding_ = at::Tensor();
  lm_head_ = Linear();
  for (Layer& layer : layers_) {
    layer.gate = layer.up = layer.down = Linear();
  }
}

void Decoder::CheckStep(std::span<const int64_t> ids, const PagedStep& step) const {
  CheckIndices(ids, config_.vocab_size, "token id");
  CheckIndices(step.positions, config_.max_position_embeddings, "position");
}

void Decoder::PackedEmbed(std::span<const int64_t> ids, const std::vector<int64_t>& positions,
                          float* y) const {
  WithElements(token_embedding_, [&](const auto* table) {
    CopyRows(table, ids.data(), std::ssize(ids), config_.hidden_size, y, ComputePool());
  });
  if (packed_positions_.empty()) return;
  AddRows(packed_positions_.data(), positions.data(), std::ssize(positions), config_.hidden_size, y,
          ComputePool());
}

void Decoder::PackedNormalize(const Norm& norm, const float* x, int64_t rows, float* y) const {
  const int64_t width = config_.hidden_size;
  const auto eps = static_cast<float>(config_.norm_eps);
  if (config_.norm == NormKind::kRmsNorm) {
    RmsNorm(x, width, rows, width, norm.packed_weight.data(), eps, y, width, ComputePool());
  } else {
    const float* bias = norm.packed_bias.empty() ? nullptr : norm.packed_bias.data();
    LayerNorm(x, width, rows, width, norm.packed_weight.data(), bias, eps, y, width, ComputePool());
  }
}

void Decoder::PackedMlp(const Layer& layer, const float* x, int64_t rows, Workspace& workspace,
                        float* y) const {
  const Workspace::Scope scope(workspace);
  const int64_t width = config_.intermediate_size;
  float* h = workspace.Floats(rows * layer.packed_in.shape().outputs);  // [rows, gate, then up]
  layer.packed_in.Apply(x, rows, h, ComputePool());
  switch (config_.hidden_act) {
    case HiddenAct::kSilu: {
      float* const gated = workspace.Floats(rows * width);
      GatedSilu(h, rows, width, gated, ComputePool());
      h = gated;
      break;
    }
    case HiddenAct::kGelu:
      GeluTanh(h, rows, width, ComputePool());
      break;
    case HiddenAct::kGeluExact:
      Gelu(h, rows, width, ComputePool());
      break;
  }
  layer.packed_down.Apply(h, rows, y, ComputePool());
}

std::span<const float> Decoder::Step(std::span<const int64_t> ids, const PagedStep& step,
                                     std::span<const int64_t> logit_rows, KvCacheStorage& cache,
                                     Workspace& workspace) const {
  const int64_t tokens = step.tokens(), rows = std::ssize(logit_rows);
  const int64_t width = config_.hidden_size;
  const std::span<float> logits(workspace.Floats(rows * config_.vocab_size),
                                rows * config_.vocab_size);
  if (!ServesOnKernels(token_embedding_)) {
    const at::Tensor computed =
        StepOnTensors(ids, step, logit_rows, cache).to(at::kCPU, at::kFloat).contiguous();
    std::copy_n(computed.data_ptr<float>(), logits.size(), logits.data());
    return logits;
  }
  CheckStep(ids, step);
  const Workspace::Scope scope(workspace);
  float* const x = workspace.Floats(tokens * width);
  float* const normal = workspace.Floats(std::max(tokens, rows) * width);
  float* const branch = workspace.Floats(std::max(tokens, rows) * width);
  PackedEmbed(ids, step.positions, x);
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    const Layer& layer = layers_[i];
    PackedNormalize(layer.attention_norm, x, tokens, normal);
    layer.attention->Paged(normal, step, cache.layer(i), workspace, branch);
    Add(branch, tokens * width, x, ComputePool());
    PackedNormalize(layer.mlp_norm, x, tokens, normal);
    PackedMlp(layer, normal, tokens, workspace, branch);
    Add(branch, tokens * width, x, ComputePool());
  }
  float* const wanted = branch;  // [rows, D]
  CopyRows(x, logit_rows.data(), rows, width, wanted, ComputePool());
  PackedNormalize(final_norm_, wanted, rows, normal);
  packed_lm_head_.Apply(normal, rows, logits.data(), ComputePool());
  return logits;
}

at::Tensor Decoder::StepOnTensors(std::span<const int64_t> ids, const PagedStep& step,
                                  std::span<const int64_t> logit_rows,
                                  KvCacheStorage& cache) const {
  CheckStep(ids, step);
  const at::NoGradGuard no_grad;
  const auto to_device = [&](std::span<const int64_t> values) {
    return at::tensor(at::ArrayRef<int64_t>(values.data(), values.size()), at::kLong).to(device());
  };
  const TensorStep on_device(step, cache.layer(0).size(2), device());
  const auto attend = [&](int64_t layer, const at::Tensor& h) {
    return layers_[layer].attention->Paged(h, on_device, cache.layer(layer));
  };
  const at::Tensor x = Blocks(Embed(to_device(ids), on_device.positions), attend, std::plus<>());
  return lm_head_(Normalize(final_norm_, x.index_select(0, to_device(logit_rows))));
}

int64_t ParameterCount(const ModelConfig& config) {
  int64_t count = 0;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    count += std::accumulate(spec.shape.begin(), spec.shape.end(), int64_t{1}, std::multiplies<>());
  }
  return count;
}

}  // namespace triptych
