#include "engine/decoder/convert_weights.h"

#include <ATen/ATen.h>

#include <cmath>
#include <cstddef>

#include "engine/decoder/conversion_rules.h"
#include "engine/decoder/normed_keys.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/model/validate_config.h"

namespace triptych {
namespace {

// Tensors of a layer that a conversion replaces; biases may be absent.
constexpr const char* kKeyValueTensors[] = {"k_proj.weight", "k_proj.bias", "v_proj.weight",
                                            "v_proj.bias"};

// Applies `change` to every key and value tensor.
template <typename Change>
void ChangeKeyValue(Checkpoint& checkpoint, Change change) {
  for (int64_t layer = 0; layer < checkpoint.config.num_hidden_layers; ++layer) {
    for (const char* name : kKeyValueTensors) {
      const auto found = checkpoint.weights.find(AttentionPrefix(layer) + name);
      if (found != checkpoint.weights.end()) found->second = change(found->second);
    }
  }
}

// Adds W_O b of a value bias b to the output bias. A key bias drops out of the softmax.
void FoldValueBias(const at::Tensor& v_bias, Checkpoint& to, const std::string& prefix) {
  const at::Tensor& o = to.weights.at(prefix + "o_proj.weight");
  at::Tensor& o_bias = to.weights[prefix + "o_proj.bias"];
  if (!o_bias.defined()) o_bias = at::zeros({o.size(0)}, o.options());
  SetOutputBias(to.config);
  o_bias = (o_bias.to(at::kDouble) + at::mv(o.to(at::kDouble), v_bias.to(at::kDouble)))
               .to(o_bias.scalar_type());
}

// Sets the fields of these decoupled keys. Scores stay those of `from`.
void SetDecoupled(const DecoupledKeys& decoupled, const ModelConfig& from, ModelConfig& to) {
  const auto width = static_cast<double>(decoupled.width());
  to.qk_rope_head_dim = decoupled.width();
  to.attention_score_factor *=
      std::sqrt((static_cast<double>(from.head_dim) + width) / static_cast<double>(from.head_dim));
  to.rope_factors.clear();
  for (size_t i = 0; i < decoupled.frequencies.size(); ++i) {
    to.rope_factors.push_back(std::pow(from.rope_theta, -2 * static_cast<double>(i) / width) /
                              decoupled.frequencies[i]);
  }
  to.latent_bias = from.attention_bias;
}

// The magnitude of rotated queries times that of rotated keys, for those that lose their rotation.
double UnrotatedFactor(const ModelConfig& config) {
  return config.rope_attention_factor * config.rope_attention_factor;
}

// Adds the rows of decoupled keys: to the queries, below their rows for the unrotated rest; to
// kv_a_proj_with_mqa, below the latent.
//   factors: of the queries' elements, [H * d], or undefined
void AddDecoupled(const Checkpoint& from, const at::Tensor& keys, const at::Tensor& factors,
                  const at::Tensor& mix, const std::string& prefix, Checkpoint& to) {
  const int64_t heads = from.config.num_attention_heads;
  for (const char* part : {"q_proj.weight", "q_proj.bias"}) {
    const auto found = from.weights.find(prefix + part);
    if (found == from.weights.end()) continue;
    const at::Tensor rows = found->second.to(at::kDouble);
    at::Tensor rest = rows, turned = rows;
    if (factors.defined()) {  // the norm stands between the rest and its factors
      turned = rows * (rows.dim() == 1 ? factors : factors.unsqueeze(1));
    } else {
      rest = rows * UnrotatedFactor(from.config);
    }
    to.weights[prefix + part] = at::cat({rest.unflatten(0, {heads, -1}),
                                         DecoupledQueryRows(turned, mix).unflatten(0, {heads, -1})},
                                        1)
                                    .flatten(0, 1)
                                    .to(found->second.scalar_type());
  }
  at::Tensor& kv_a = to.weights.at(prefix + "kv_a_proj_with_mqa.weight");
  kv_a = at::cat({kv_a, DecoupledRows(keys, mix).to(kv_a.scalar_type())});
  const auto bias = from.weights.find(prefix + "k_proj.bias");
  if (bias == from.weights.end()) return;
  // The bias of the rest of the keys is the same at every position: it drops out of the softmax.
  to.weights[prefix + "kv_a_proj_with_mqa.bias"] =
      at::cat({at::zeros({kv_a.size(0) - 2 * mix.size(0)}, kv_a.options()),
               DecoupledRows(bias->second, mix).to(kv_a.scalar_type())});
}

}  // namespace

DecoupledKeys FindDecoupledKeys(const Checkpoint& from, const ConversionSpec& to,
                                const std::vector<at::Tensor>& covariances) {
  const int64_t width = RopeHeadDim(to, from.config);
  return width > 0 ? MixedPairs(from, to.fold, covariances).Strongest(width) : DecoupledKeys();
}

Checkpoint WithLikeHeadsTogether(const Checkpoint& from, int64_t groups,
                                 const std::vector<at::Tensor>& covariances) {
  const int64_t stored = from.config.num_key_value_heads, d = from.config.head_dim;
  Checkpoint to = from;
  for (int64_t layer = 0; layer < from.config.num_hidden_layers; ++layer) {
    const std::string prefix = AttentionPrefix(layer);
    const at::Tensor covariance = covariances.empty() ? at::Tensor() : covariances[layer];
    const at::Tensor k = from.weights.at(prefix + "k_proj.weight");
    const at::Tensor v = from.weights.at(prefix + "v_proj.weight");
    const at::Tensor order = at::tensor(
        LikeHeads(Likeness(k, d, covariance) + Likeness(v, d, covariance), groups), at::kLong);
    // Rows of every repeat of the stored heads.
    const auto ordered = [&](const at::Tensor& rows) {
      return rows.unflatten(0, {-1, stored, d}).index_select(1, order).flatten(0, 2);
    };
    const auto kept = [&](const at::Tensor& rows) {
      return CommonBasis(rows, groups, d, covariance).energy_kept();
    };
    if (kept(ordered(k)) + kept(ordered(v)) <= kept(k) + kept(v)) continue;
    for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
      for (const char* part : {".weight", ".bias"}) {
        const auto found = to.weights.find(prefix + name + part);
        if (found != to.weights.end()) found->second = ordered(found->second);
      }
    }
    at::Tensor& o = to.weights.at(prefix + "o_proj.weight");
    o = ordered(o.t()).t().contiguous();
  }
  return to;
}

std::vector<GroupBases> FindGroupBases(const Checkpoint& from, int64_t groups,
                                       const std::vector<at::Tensor>& covariances) {
  std::vector<GroupBases> bases;
  for (int64_t layer = 0; layer < from.config.num_hidden_layers; ++layer) {
    const auto basis = [&](const char* name) {
      return CommonBasis(from.weights.at(AttentionPrefix(layer) + name), groups,
                         from.config.head_dim,
                         covariances.empty() ? at::Tensor() : covariances[layer]);
    };
    bases.push_back({.keys = basis("k_proj.weight"), .values = basis("v_proj.weight")});
  }
  return bases;
}

Checkpoint ToGroups(const Checkpoint& from, const std::vector<GroupBases>& bases) {
  Checkpoint to = from;
  to.config = WithGroups(from.config, AttentionKind::kGqa,
                         bases.front().keys.heads().size(0) / from.config.head_dim);
  for (int64_t layer = 0; layer < from.config.num_hidden_layers; ++layer) {
    const std::string prefix = AttentionPrefix(layer);
    const auto change = [&](const char* name, const auto& made) {
      at::Tensor& weight = to.weights.at(prefix + name);
      weight = made(weight).contiguous().to(weight.scalar_type());
    };
    const CommonBasis& keys = bases[layer].keys;
    const CommonBasis& values = bases[layer].values;
    const auto turn = [&](const at::Tensor& rows) { return keys.Turn(rows); };
    if (from.config.attention_bias) {
      FoldValueBias(RepeatHeads(from.weights.at(prefix + "v_proj.bias"),
                                from.config.num_attention_heads, from.config.head_dim),
                    to, prefix);
      change("q_proj.bias", turn);
      for (const char* dropped : {"k_proj.bias", "v_proj.bias"}) {
        change(dropped, [&](const at::Tensor& bias) {
          return at::zeros({keys.heads().size(0)}, bias.options());
        });
      }
    }
    change("q_proj.weight", turn);
    change("k_proj.weight", [&](const at::Tensor&) { return keys.heads(); });
    change("v_proj.weight", [&](const at::Tensor&) { return values.heads(); });
    change("o_proj.weight", [&](const at::Tensor& o) { return values.Turn(o.t()).t(); });
  }
  return to;
}

Checkpoint ByCommonBases(const Checkpoint& from, int64_t groups,
                         const std::vector<at::Tensor>& covariances) {
  const Checkpoint like = WithLikeHeadsTogether(from, groups, covariances);
  return ToGroups(like, FindGroupBases(like, groups, covariances));
}

std::vector<KeyValueSvd> DecomposeLayers(const Checkpoint& from,
                                         const std::vector<at::Tensor>& covariances,
                                         const DecoupledKeys& decoupled) {
  std::vector<KeyValueSvd> svds;
  for (int64_t layer = 0; layer < from.config.num_hidden_layers; ++layer) {
    const std::string prefix = AttentionPrefix(layer);
    const at::Tensor keys = KeysToFactor(from, layer);
    svds.emplace_back(decoupled.defined() ? RestOfRows(keys, decoupled.mixes[layer]) : keys,
                      from.weights.at(prefix + "v_proj.weight"),
                      covariances.empty() ? at::Tensor() : covariances[layer],
                      decoupled.defined() ? keys : at::Tensor());
  }
  return svds;
}

Checkpoint ToLatent(const Checkpoint& from, const std::vector<KeyValueSvd>& svds,
                    const std::vector<int64_t>& ranks, const DecoupledKeys& decoupled) {
  Checkpoint to = from;
  const int64_t heads = from.config.num_attention_heads, d = from.config.head_dim;
  to.config = WithLatents(from.config, ranks);
  if (decoupled.defined()) SetDecoupled(decoupled, from.config, to.config);
  for (int64_t layer = 0; layer < from.config.num_hidden_layers; ++layer) {
    const std::string prefix = AttentionPrefix(layer);
    const LatentFactors factors = svds[layer].Factors(ranks[layer]);
    const at::ScalarType dtype = from.weights.at(prefix + "k_proj.weight").scalar_type();
    const auto per_head = [&](const at::Tensor& up) {  // [H, d, r]
      return RepeatHeads(up, heads, d).view({heads, d, ranks[layer]});
    };
    to.weights[prefix + "kv_a_proj_with_mqa.weight"] = factors.down.to(dtype);
    to.weights[prefix + "kv_b_proj.weight"] =
        at::cat({per_head(factors.up_k), per_head(factors.up_v)}, 1).flatten(0, 1).to(dtype);
    if (from.config.attention_bias) {
      FoldValueBias(RepeatHeads(from.weights.at(prefix + "v_proj.bias"), heads, d), to, prefix);
    }
    const bool normed = from.config.qk_norm;
    const at::Tensor query_factors = normed ? NormedQueryFactors(from, layer) : at::Tensor();
    if (decoupled.defined()) {
      AddDecoupled(from, KeysToFactor(from, layer), query_factors, decoupled.mixes[layer], prefix,
                   to);
    }
    for (const char* name : kKeyValueTensors) to.weights.erase(prefix + name);
    if (normed) {
      to.weights.erase(prefix + "k_norm.weight");
      to.weights[prefix + "k_proj.weight"] = from.weights.at(prefix + "k_proj.weight");
      to.weights[prefix + "q_norm.weight"] =
          (query_factors * UnrotatedFactor(from.config)).to(dtype);
    }
  }
  return to;
}

Checkpoint ConvertChecked(const Checkpoint& from, const ConversionSpec& to,
                          const DecoupledKeys& decoupled) {
  const int64_t heads = from.config.num_attention_heads, d = from.config.head_dim;
  if (to.attention == AttentionKind::kMla) {
    const int64_t rank = to.rank > 0 ? to.rank : FullRank(from.config, decoupled.width());
    return ToLatent(from, DecomposeLayers(from, {}, decoupled),
                    std::vector<int64_t>(from.config.num_hidden_layers, rank), decoupled);
  }
  if (HasCommonBases(to, from.config)) return ByCommonBases(from, to.groups);
  Checkpoint converted = from;
  if (to.attention == AttentionKind::kGqa) {
    converted.config = WithGroups(from.config, AttentionKind::kGqa, to.groups);
    ChangeKeyValue(converted,
                   [&](const at::Tensor& rows) { return PoolHeads(rows, to.groups, d); });
  } else {
    converted.config = WithGroups(from.config, AttentionKind::kMha, heads);
    ChangeKeyValue(converted, [&](const at::Tensor& rows) { return RepeatHeads(rows, heads, d); });
  }
  return converted;
}

Checkpoint Convert(const Checkpoint& from, const ConversionSpec& to, const std::string& source) {
  CheckConversion(from, to, source);
  Checkpoint converted = ConvertChecked(from, to, FindDecoupledKeys(from, to));
  Validate(converted.config, {.file = source + ", converted"});
  return converted;
}

Checkpoint AsStored(Checkpoint model) {
  const at::ScalarType dtype = ToScalarType(model.config.torch_dtype);
  for (auto& [name, tensor] : model.weights) tensor = tensor.to(dtype).to(at::kFloat);
  return model;
}

at::Tensor FullKeyValue(const Checkpoint& checkpoint, int64_t layer) {
  const std::string prefix = AttentionPrefix(layer);
  const int64_t heads = checkpoint.config.num_attention_heads, d = checkpoint.config.head_dim;
  if (checkpoint.config.attention == AttentionKind::kMla) {
    const at::Tensor both =
        at::mm(checkpoint.weights.at(prefix + "kv_b_proj.weight").to(at::kDouble),
               checkpoint.weights.at(prefix + "kv_a_proj_with_mqa.weight")
                   .narrow(0, 0, checkpoint.config.kv_lora_rank[layer])
                   .to(at::kDouble));
    // Per head W_K[h] over W_V[h] becomes all keys over all values.
    const int64_t d_v = checkpoint.config.ValueDim();
    const at::Tensor of_heads = both.view({heads, d + d_v, -1});
    return at::cat(
        {of_heads.narrow(1, 0, d).flatten(0, 1), of_heads.narrow(1, d, d_v).flatten(0, 1)});
  }
  const auto repeated = [&](const char* name) {
    return RepeatHeads(checkpoint.weights.at(prefix + name).to(at::kDouble), heads, d);
  };
  return at::cat({repeated("k_proj.weight"), repeated("v_proj.weight")});
}

}  // namespace triptych
