#include "engine/backend/cpu/pack_weights.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend/cpu/cost_model.h"
#include "engine/backend/cpu/grouped_layer.h"
#include "engine/backend/cpu/latent_layer.h"
#include "engine/backend/cpu/pack.h"
#include "engine/decoder/layer_weights.h"
#include "engine/model/row_layout.h"

namespace triptych {
namespace {

using RotationTable = std::shared_ptr<const std::vector<float>>;

CpuWeights::Norm PackNorm(const NormWeights& norm) {
  return {.weight = ToFloats(norm.weight), .bias = ToFloats(norm.bias)};
}

std::unique_ptr<const AttentionLayer> PackGrouped(const ModelConfig& config, int64_t layer,
                                                  const GroupedWeights& weights,
                                                  WeightFormat format,
                                                  const RotationTable& rotation, ThreadPool& pool) {
  return std::make_unique<GroupedLayer>(
      GroupedRowLayout(config.num_attention_heads, config.num_key_value_heads, config.head_dim,
                       config.head_dim),
      static_cast<float>(config.ScoreFactor(layer) /
                         std::sqrt(static_cast<double>(config.head_dim))),
      GroupedLayer::Weights{.qkv = Pack({weights.q, weights.k, weights.v}, format, pool),
                            .o = Pack({weights.o}, format, pool),
                            .rotation = rotation,
                            .q_norm = ToFloats(weights.q_norm),
                            .k_norm = ToFloats(weights.k_norm),
                            .norm_eps = static_cast<float>(config.norm_eps)});
}

}  // namespace

std::unique_ptr<const AttentionLayer> PackLatent(const LatentShape& shape,
                                                 const ReducedWeights& weights, WeightFormat format,
                                                 const RotationTable& rotation, bool expand,
                                                 ThreadPool& pool) {
  const bool low_rank = weights.q_a.defined();
  LatentLayer::Weights packed{
      .in = Pack({low_rank ? weights.q_a : weights.q, weights.kv_a}, format, pool),
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
    if (expand && VanillaCanPay(shape)) {
      packed.factors->expand_keys = PackHeads(weights.uk, format, pool);
    }
  }
  return std::make_unique<LatentLayer>(shape, std::move(packed));
}

CpuWeights PackWeights(const ModelConfig& config, WeightSource& source,
                       const WeightFormats& formats, std::optional<int64_t> expand_from,
                       ThreadPool& pool) {
  const WeightFormat format = formats.layers;
  CpuWeights packed;
  if (config.attention == AttentionKind::kMla) packed.expand_from = ExpandFrom(config, expand_from);
  {
    Weights weights = source.TakeRest();
    packed.positions = ToFloats(PositionTable(config, weights));
    packed.final_norm = PackNorm(FindNorm(weights, kFinalNormName));
    packed.output = Pack({{FindOutputMatrix(config, weights), {}}}, formats.embeddings, pool);
    if (!config.tie_word_embeddings) {
      weights.erase(kOutputName);
      packed.embedding = Pack({{weights.at(kEmbeddingName), {}}}, formats.embeddings, pool);
    }
  }
  for (std::vector<float>* part : {&packed.final_norm.weight, &packed.final_norm.bias}) {
    for (float& element : *part) element *= static_cast<float>(config.logit_multiplier);
  }
  RotationTable rotation;
  if (const at::Tensor table = MakeRotary(config, at::kCPU).Table(); table.defined()) {
    rotation = std::make_shared<const std::vector<float>>(ToFloats(table));
  }
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const Weights weights = source.TakeLayer(i);
    CpuWeights::Layer& layer = packed.layers.emplace_back();
    layer.attention_norm = PackNorm(FindNorm(weights, AttentionNormName(i)));
    layer.mlp_norm = PackNorm(FindNorm(weights, MlpNormName(i)));
    if (config.attention == AttentionKind::kMla) {
      const LatentShape shape = LatentShapeOf(config, i);
      layer.attention = PackLatent(
          shape, Reduce(shape, FindLatent(weights, i), SmallerForm(shape, config.hidden_size)),
          format, rotation, packed.expand_from.has_value(), pool);
    } else {
      layer.attention = PackGrouped(config, i, FindGrouped(weights, i), format, rotation, pool);
    }
    const MlpWeights mlp = FindMlp(weights, i);
    layer.mlp_in = Pack({mlp.gate, mlp.up}, format, pool);
    layer.mlp_down = Pack({mlp.down}, format, pool);
  }
  return packed;
}

CpuWeights PackWeights(const ModelConfig& config, Weights weights, const WeightFormats& formats,
                       std::optional<int64_t> expand_from, ThreadPool& pool) {
  HeldWeights held(std::move(weights));
  return PackWeights(config, held, formats, expand_from, pool);
}

}  // namespace triptych
