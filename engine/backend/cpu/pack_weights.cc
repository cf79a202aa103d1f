#include "engine/backend/cpu/pack_weights.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/backend/cpu/cost_model.h"
#include "engine/backend/cpu/dense_mlp.h"
#include "engine/backend/cpu/experts_mlp.h"
#include "engine/backend/cpu/grouped_layer.h"
#include "engine/backend/cpu/latent_layer.h"
#include "engine/backend/cpu/pack.h"
#include "engine/decoder/layer_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/kernels/row_layout.h"

namespace triptych::cpu {
namespace {

using RotationTable = std::shared_ptr<const std::vector<float>>;

RotationTable TableOf(const Rotary& rotary) {
  if (!rotary.defined()) return nullptr;
  return std::make_shared<const std::vector<float>>(ToFloats(rotary.Table()));
}

CpuWeights::Norm PackNorm(const NormWeights& norm) {
  return {.weight = ToFloats(norm.weight), .bias = ToFloats(norm.bias)};
}

std::unique_ptr<const AttentionLayer> PackGrouped(const ModelConfig& config, int64_t layer,
                                                  const GroupedWeights& weights,
                                                  WeightFormat format,
                                                  const RotationTable& rotation,
                                                  kernels::ThreadPool& pool) {
  return std::make_unique<GroupedLayer>(
      kernels::GroupedRowLayout(config.num_attention_heads, config.num_key_value_heads,
                                config.head_dim, config.head_dim),
      kernels::PagedScores{
          .scale = static_cast<float>(config.ScoreFactor(layer) /
                                      std::sqrt(static_cast<double>(config.head_dim))),
          .softcap = static_cast<float>(config.attn_logit_softcapping),
          .window = config.Window(layer)},
      GroupedLayer::Weights{.qkv = Pack({weights.q, weights.k, weights.v}, format, pool),
                            .o = Pack({weights.o}, format, pool),
                            .rotation = config.Rotates(layer) ? rotation : nullptr,
                            .q_norm = ToFloats(weights.q_norm),
                            .k_norm = ToFloats(weights.k_norm),
                            .norm_eps = static_cast<float>(config.norm_eps)});
}

// The prefix of the tensors that are packed together with a tensor of a layer.
std::string PartOf(const std::string& name, int64_t layer) {
  if (name.starts_with(AttentionPrefix(layer))) return AttentionPrefix(layer);
  if (!IsOfExpert(name)) return MlpPrefix(layer);
  const size_t index = ExpertPrefix(layer, 0).size() - std::string_view("0.").size();
  return name.substr(0, name.find('.', index) + 1);
}

Activation ActivationOf(const ModelConfig& config) { return {config.mlp, config.hidden_act}; }

DenseMlp PackMlp(const ModelConfig& config, const std::string& prefix, WeightSource& source,
                 WeightFormat format, kernels::ThreadPool& pool) {
  const Weights weights = source.Take(prefix);
  const MlpWeights mlp = FindMlp(weights, prefix);
  return {ActivationOf(config),
          {.in = Pack({mlp.gate, mlp.up}, format, pool), .down = Pack({mlp.down}, format, pool)}};
}

kernels::Router RouterOf(const ExpertsConfig& config) {
  return {.experts = config.n_routed_experts,
          .choices = config.num_experts_per_tok,
          .sigmoid = config.scoring_func == ScoringFunc::kSigmoid,
          .bias = {},
          .groups = config.n_group,
          .chosen_groups = config.topk_group,
          .best_of_group = config.topk_method == TopkMethod::kNoauxTc ? 2 : 1,
          .normalize = config.norm_topk_prob,
          .least_sum = static_cast<float>(kLeastScoreSum),
          .scale = static_cast<float>(config.routed_scaling_factor)};
}

// Takes the next expert on a thread of its own while one is packed.
std::unique_ptr<const MlpLayer> PackExperts(const ModelConfig& config, int64_t layer,
                                            WeightSource& source, const WeightFormats& formats,
                                            kernels::ThreadPool& pool) {
  const ExpertsConfig& experts = config.experts;
  const int64_t count = experts.n_routed_experts, inner = experts.moe_intermediate_size;
  const int64_t width = config.hidden_size;
  const auto pack_row = [&](const std::string& name) {
    const Weights taken = source.Take(name);
    return Pack({{taken.at(name), {}}}, WeightFormat::kFloat32, pool);
  };
  const Activation activation = ActivationOf(config);
  ExpertsMlp::Weights packed{
      .router = RouterOf(experts),
      .router_matrix = pack_row(RouterName(layer)),
      .in = kernels::PackedLinear({count, activation.inputs() * inner, width}, formats.experts),
      .down = kernels::PackedLinear({count, width, inner}, formats.experts),
      .shared = {},
      .shared_gate = {}};
  if (experts.topk_method == TopkMethod::kNoauxTc) {
    packed.router.bias = ToFloats(source.Take(RouterBiasName(layer)).at(RouterBiasName(layer)));
  }
  if (experts.shared_expert_intermediate_size > 0) {
    packed.shared = PackMlp(config, SharedExpertsPrefix(layer), source, formats.layers, pool);
    if (experts.shared_expert_gate) packed.shared_gate = pack_row(SharedExpertGateName(layer));
  }
  const auto take = [&](int64_t expert) {
    // Without a free thread of the system, the expert is read when it is needed.
    return std::async(std::launch::async | std::launch::deferred, [&source, layer, expert] {
      return source.Take(ExpertPrefix(layer, expert));
    });
  };
  std::future<Weights> next = take(0);
  for (int64_t expert = 0; expert < count; ++expert) {
    const Weights weights = next.get();
    if (expert + 1 < count) next = take(expert + 1);
    const MlpWeights mlp = FindMlp(weights, ExpertPrefix(layer, expert));
    PackGroup({mlp.gate, mlp.up}, expert, pool, packed.in);
    PackGroup({mlp.down}, expert, pool, packed.down);
  }
  return std::make_unique<ExpertsMlp>(activation, std::move(packed));
}

}  // namespace

std::unique_ptr<const AttentionLayer> PackLatent(const LatentShape& shape,
                                                 const ReducedWeights& weights, WeightFormat format,
                                                 const RotationTable& rotation, bool expand,
                                                 kernels::ThreadPool& pool) {
  const bool low_rank = weights.q_a.defined();
  std::vector<Linear> in = {low_rank ? weights.q_a : weights.q, weights.kv_a};
  if (weights.k.defined()) in.push_back(weights.k);
  LatentLayer::Weights packed{.in = Pack(in, format, pool),
                              .low_rank_queries = {},
                              .o = Pack({weights.o}, format, pool),
                              .latent_norm = ToFloats(weights.latent_norm),
                              .rotation = rotation,
                              .factors = {}};
  if (low_rank) {
    packed.low_rank_queries = {.norm = ToFloats(weights.q_norm),
                               .up = Pack({weights.q}, format, pool)};
  }
  if (weights.form == ReducedForm::kFactored) {
    packed.factors = {.uk = PackHeads(weights.uk.transpose(1, 2), format, pool),
                      .uv = PackHeads(weights.uv, format, pool),
                      .expand_keys = {}};
    if (expand && ExpandingCanPay(shape)) {
      packed.factors->expand_keys = PackHeads(weights.uk, format, pool);
    }
  }
  return std::make_unique<LatentLayer>(shape, std::move(packed));
}

CpuWeights PackWeights(const ModelConfig& config, WeightSource& source,
                       const WeightFormats& formats, std::optional<int64_t> expand_from,
                       kernels::ThreadPool& pool,
                       const std::function<void(int64_t layers)>& on_layer) {
  const WeightFormat format = formats.layers;
  CpuWeights packed;
  if (config.attention == AttentionKind::kMla) packed.expand_from = ExpandFrom(config, expand_from);
  packed.positions = ToFloats(PositionTable(config, source.Take(kPositionsName), at::kCPU));
  packed.final_norm = PackNorm(FindNorm(source.Take(kFinalNormName), kFinalNormName));
  const auto pack_tokens = [&](const char* name) {
    const Weights taken = source.Take(name);
    return Pack({{taken.at(name), {}}}, formats.embeddings, pool);
  };
  if (!config.tie_word_embeddings) packed.embedding = pack_tokens(kEmbeddingName);
  packed.output = pack_tokens(config.tie_word_embeddings ? kEmbeddingName : kOutputName);
  for (std::vector<float>* part : {&packed.final_norm.weight, &packed.final_norm.bias}) {
    for (float& element : *part) element *= static_cast<float>(config.logit_multiplier);
  }
  const LayerRotary rotary = MakeRotary(config, at::kCPU);
  const RotationTable shared = TableOf(rotary.shared), local = TableOf(rotary.local);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    CpuWeights::Layer& layer = packed.layers.emplace_back();
    const auto pack_norm = [&](const std::string& name) {
      return PackNorm(FindNorm(source.Take(name), name));
    };
    layer.attention_norm = pack_norm(AttentionNormName(i));
    {
      const Weights weights = source.Take(AttentionPrefix(i));
      if (config.attention == AttentionKind::kMla) {
        const LatentShape shape = LatentShapeOf(config, i);
        layer.attention = PackLatent(
            shape, Reduce(shape, FindLatent(weights, i), SmallerForm(shape, config.hidden_size)),
            format, shared, packed.expand_from.has_value(), pool);
      } else {
        layer.attention = PackGrouped(config, i, FindGrouped(weights, i), format,
                                      config.TurnsLocally(i) ? local : shared, pool);
      }
    }
    layer.attention_output_norm = pack_norm(AttentionOutputNormName(i));
    layer.mlp_norm = pack_norm(MlpNormName(i));
    if (config.HasExperts(i)) {
      layer.mlp = PackExperts(config, i, source, formats, pool);
    } else {
      layer.mlp = std::make_unique<DenseMlp>(PackMlp(config, MlpPrefix(i), source, format, pool));
    }
    layer.mlp_output_norm = pack_norm(MlpOutputNormName(i));
    if (on_layer) on_layer(i + 1);
  }
  return packed;
}

CpuWeights PackWeights(const ModelConfig& config, Weights weights, const WeightFormats& formats,
                       std::optional<int64_t> expand_from, kernels::ThreadPool& pool) {
  WeightsInMemory held(std::move(weights));
  return PackWeights(config, held, formats, expand_from, pool);
}

int64_t UnpackedBytes(const ModelConfig& config, const WeightFormats& formats, TensorFormat read) {
  constexpr int64_t kReduced = 4 * 8;  // bytes of an element: about four copies in float64
  const int64_t as_read = 2 * WeightBytes(ToWeightFormat(read), 1, 1);
  std::map<std::string, int64_t> parts;  // bytes of parts of layers, by prefix
  int64_t of_tokens = 0, layers = 0;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    const int64_t elements =
        std::accumulate(spec.shape.begin(), spec.shape.end(), int64_t{1}, std::multiplies<>());
    const std::optional<int64_t> layer = LayerOf(spec.name);
    if (!layer) {
      of_tokens = std::max(of_tokens, as_read * elements);
      continue;
    }
    const std::string part = PartOf(spec.name, *layer);
    const bool attends = part == AttentionPrefix(*layer);
    const bool reduced = attends && config.attention == AttentionKind::kMla;
    const int64_t held = IsOfExpert(part) ? 2 : 1;  // one is packed, the next read
    layers += WeightBytes(IsOfExpert(part) ? formats.experts : formats.layers, spec.shape.back(),
                          elements / spec.shape.back());
    parts[part] += (reduced ? kReduced : held * as_read) * elements;
  }
  int64_t most = of_tokens - layers;
  for (const auto& [prefix, bytes] : parts) most = std::max(most, bytes);
  return most;
}

}  // namespace triptych::cpu
