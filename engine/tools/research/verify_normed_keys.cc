#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "engine/attention/algebra.h"
#include "engine/attention/grouped_attention.h"
#include "engine/attention/latent_attention.h"
#include "engine/decoder/conversion_rules.h"
#include "engine/decoder/convert_weights.h"
#include "engine/decoder/layer_weights.h"
#include "engine/decoder/normed_keys.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/tools/research/latent_problem.h"
#include "engine/tools/research/verify.h"

namespace triptych::tools {
namespace {

constexpr double kDecay = 0.98;  // of the inputs' sizes, so that ranks matter

// One layer of attention with normed keys; the weights of its norms differ in the elements of a
// rotary pair.
Checkpoint RandomLayer(const VerifyNormedKeysOptions& o, bool rotates) {
  ModelConfig config;
  config.hidden_size = o.width;
  config.num_hidden_layers = 1;
  config.num_attention_heads = o.heads;
  config.num_key_value_heads = o.groups;
  config.head_dim = o.head_dim;
  config.max_position_embeddings = o.length;
  config.attention = AttentionKind::kGqa;
  config.position_embedding = rotates ? PositionEmbedding::kRope : PositionEmbedding::kNone;
  config.qk_norm = true;
  const at::Tensor sizes = at::pow(kDecay, at::arange(o.width, at::kDouble));
  const auto projection = [&](int64_t rows) { return Normal({rows, o.width}) * sizes; };
  const std::string prefix = AttentionPrefix(0);
  Checkpoint layer{.config = config, .weights = {}};
  layer.weights[prefix + "q_proj.weight"] = projection(o.heads * o.head_dim);
  layer.weights[prefix + "k_proj.weight"] = projection(o.groups * o.head_dim);
  layer.weights[prefix + "v_proj.weight"] = projection(o.groups * o.head_dim);
  layer.weights[prefix + "o_proj.weight"] = Normal({o.width, o.heads * o.head_dim});
  layer.weights[prefix + "q_norm.weight"] = Normal({o.head_dim}) * 0.3 + 1;
  layer.weights[prefix + "k_norm.weight"] = Normal({o.head_dim}) * 0.3 + 1;
  return layer;
}

// The weights whose inverse norms are those of the keys that the latents have, not of the source's.
LatentWeights WithOwnNorms(const Checkpoint& from, const Checkpoint& to,
                           const DecoupledKeys& decoupled, LatentWeights weights) {
  const int64_t rows = from.config.num_key_value_heads * from.config.head_dim;
  at::Tensor keys = FullKeyValue(to, 0).narrow(0, 0, rows);
  if (decoupled.defined()) {
    keys = keys + AsKeyRows(weights.kv_a.weight.narrow(0, to.config.kv_lora_rank[0],
                                                       to.config.qk_rope_head_dim),
                            decoupled.mixes[0]);
  }
  // KeysToFactor multiplies each row by a number.
  const at::Tensor source = from.weights.at(AttentionPrefix(0) + "k_proj.weight");
  weights.k.weight = keys * (source.norm(2, 1) / KeysToFactor(from, 0).norm(2, 1)).unsqueeze(1);
  return weights;
}

// Prints one line; returns whether the reduction holds.
bool VerifyRanks(const Checkpoint& from, const at::Tensor& x, const ConversionSpec& to) {
  const DecoupledKeys decoupled = FindDecoupledKeys(from, to);
  const Checkpoint made = ConvertChecked(from, to, decoupled);
  const LatentShape shape = LatentShapeOf(made.config, 0);
  const LatentWeights weights = FindLatent(made.weights, 0);
  const Rotary rotary = MakeRotary(made.config, at::kCPU).shared;
  const LayerRotary source_rotary = MakeRotary(from.config, at::kCPU);
  const GroupedAttention source(from.config.num_attention_heads, from.config.num_key_value_heads,
                                FindGrouped(from.weights, 0),
                                GroupedOptionsOf(from.config, 0, source_rotary));
  const at::Tensor expected = source.Dense(x, x, /*causal=*/true, CacheFormat::kFloat32, nullptr);
  const LatentAttention latent(shape, weights, rotary);
  const at::Tensor expanded = latent.Dense(x, x, /*causal=*/true);
  const at::Tensor reduced = latent.Reduced(ReducedForm::kFactored).Dense(x, x, /*causal=*/true);
  const at::Tensor own =
      LatentAttention(shape, WithOwnNorms(from, made, decoupled, weights), rotary)
          .Dense(x, x, /*causal=*/true);

  const int64_t all = from.config.num_key_value_heads * from.config.head_dim;
  const bool rotates = from.config.position_embedding == PositionEmbedding::kRope;
  const bool exact =
      shape.rank == FullRank(from.config, shape.d_rope) && (!rotates || shape.d_rope == all);
  const double to_expanded = RelativeError(reduced, expanded);
  const double to_source = RelativeError(reduced, expected);
  const bool holds = to_expanded <= kProof && (!exact || to_source <= kProof);
  std::printf("%-8s %5lld %5lld %5lld %5lld   %9.1e   %9.1e   %9.1e   %-8s %s\n",
              rotates ? "rotated" : "none", static_cast<long long>(shape.d_rope),
              static_cast<long long>(shape.rank), static_cast<long long>(shape.normed_keys),
              static_cast<long long>(CacheRowElements(made.config, 0)), to_expanded, to_source,
              RelativeError(own, expected), exact ? "nothing" : "rank", Verdict(holds));
  return holds;
}

}  // namespace

bool VerifyNormedKeys(const VerifyNormedKeysOptions& o) {
  const at::NoGradGuard no_grad;
  if (o.heads % o.groups != 0 || o.head_dim % 8 != 0) {
    throw std::runtime_error(
        "--groups must divide --heads, and --head-dim must be a multiple of 8");
  }
  at::manual_seed(o.seed);
  std::printf(
      "Latents with inverse norms against normed keys, in float64: D = %lld, H = %lld, G = %lld, "
      "d = %lld, L = %lld\n"
      "A row of the source has %lld numbers.\n\n"
      "                                        relative error of outputs\n"
      "                              numbers   to its        to the source, norms of\n"
      "position  d_R     r     G   of a row   expanded   its keys    own keys    lost\n",
      static_cast<long long>(o.width), static_cast<long long>(o.heads),
      static_cast<long long>(o.groups), static_cast<long long>(o.head_dim),
      static_cast<long long>(o.length), static_cast<long long>(2 * o.groups * o.head_dim));
  bool all_hold = true;
  const at::Tensor x = Normal({1, o.length, o.width});
  for (const bool rotates : {false, true}) {
    const Checkpoint from = RandomLayer(o, rotates);
    const int64_t all = o.groups * o.head_dim;
    std::vector<int64_t> widths = {0};
    if (rotates) widths = {all, all / 4};
    for (const int64_t width : widths) {
      const int64_t full = FullRank(from.config, width);
      for (const int64_t rank : {full, full / 2, full / 4}) {
        if (rank == 0) continue;
        all_hold &= VerifyRanks(
            from, x, {.attention = AttentionKind::kMla, .rank = rank, .rope_head_dim = width});
      }
    }
  }
  std::printf("\nnormed keys as latents with inverse norms: %s\n", Verdict(all_hold));
  return all_hold;
}

}  // namespace triptych::tools
