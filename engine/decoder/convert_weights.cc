#include "engine/decoder/convert_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace triptych {
namespace {

// What a conversion replaces in a layer; biases may be absent.
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

// Of a conversion by the weights alone: whether heads get a common basis.
bool HasCommonBases(const ConversionSpec& to, const ModelConfig& from) {
  return to.attention == AttentionKind::kGqa &&
         MethodOf(to, from, /*has_text=*/false) != ConversionMethod::kPool;
}

void SetOutputBias(ModelConfig& config) {
  if (!config.OutputBias()) config.attention_output_bias = true;
}

// A value bias adds W_O b to the output; a key bias drops out of the softmax.
void FoldValueBias(const at::Tensor& v_bias, Checkpoint& to, const std::string& prefix) {
  const at::Tensor& o = to.weights.at(prefix + "o_proj.weight");
  at::Tensor& o_bias = to.weights[prefix + "o_proj.bias"];
  if (!o_bias.defined()) o_bias = at::zeros({o.size(0)}, o.options());
  SetOutputBias(to.config);
  o_bias = (o_bias.to(at::kDouble) + at::mv(o.to(at::kDouble), v_bias.to(at::kDouble)))
               .to(o_bias.scalar_type());
}

// The config of a latent model with these decoupled keys, whose scores are those of `from`.
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

// Convert, without the checks. `decoupled`: of FindDecoupledKeys, where keys are rotated.
Checkpoint ConvertLayers(const Checkpoint& from, const ConversionSpec& to,
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

// Takes those of one layer.
DecoupledKeys TakeLayer(DecoupledKeys& all, int64_t layer) {
  if (!all.defined()) return {};
  return {.frequencies = all.frequencies,
          .mixes = {std::exchange(all.mixes[layer], {})},
          .energy_kept = {all.energy_kept[layer]}};
}

// The tensors of one layer's attention under the names of another's.
Weights Renumbered(const Weights& weights, int64_t from, int64_t to) {
  Weights renumbered;
  for (const auto& [name, tensor] : weights) {
    renumbered.emplace(AttentionPrefix(to) + name.substr(AttentionPrefix(from).size()), tensor);
  }
  return renumbered;
}

// Queries of the rest, which is not rotated, and of the decoupled keys; those keys below the
// latent.
void AddDecoupled(const Checkpoint& from, const at::Tensor& mix, const std::string& prefix,
                  Checkpoint& to) {
  const int64_t heads = from.config.num_attention_heads;
  const double magnitude = from.config.rope_attention_factor;  // of what was rotated
  for (const char* part : {"q_proj.weight", "q_proj.bias"}) {
    const auto found = from.weights.find(prefix + part);
    if (found == from.weights.end()) continue;
    const at::Tensor rest = found->second.to(at::kDouble) * (magnitude * magnitude);
    to.weights[prefix + part] =
        at::cat({rest.unflatten(0, {heads, -1}),
                 DecoupledQueryRows(found->second, mix).unflatten(0, {heads, -1})},
                1)
            .flatten(0, 1)
            .to(found->second.scalar_type());
  }
  at::Tensor& kv_a = to.weights.at(prefix + "kv_a_proj_with_mqa.weight");
  kv_a = at::cat(
      {kv_a, DecoupledRows(from.weights.at(prefix + "k_proj.weight"), mix).to(kv_a.scalar_type())});
  const auto bias = from.weights.find(prefix + "k_proj.bias");
  if (bias == from.weights.end()) return;
  // What the bias gives the rest of the keys is the same at every position: it drops out.
  to.weights[prefix + "kv_a_proj_with_mqa.bias"] =
      at::cat({at::zeros({kv_a.size(0) - 2 * mix.size(0)}, kv_a.options()),
               DecoupledRows(bias->second, mix).to(kv_a.scalar_type())});
}

// d_R of a conversion: to MLA what it says, or else G*d, at which nothing is lost, where keys are
// rotated; 0 where they are not, and of other conversions.
int64_t RopeHeadDim(const ConversionSpec& to, const ModelConfig& from) {
  if (to.attention != AttentionKind::kMla) return 0;
  if (to.rope_head_dim != 0 || from.position_embedding != PositionEmbedding::kRope) {
    return to.rope_head_dim;
  }
  return from.num_key_value_heads * from.head_dim;
}

}  // namespace

int64_t FullRank(const ModelConfig& config, int64_t rope_head_dim) {
  return std::min(2 * config.num_key_value_heads * config.head_dim - rope_head_dim,
                  config.hidden_size);
}

ModelConfig ConvertedShape(const ModelConfig& from, const ConversionSpec& to) {
  ModelConfig config;
  if (to.attention == AttentionKind::kMla) {
    const int64_t width = RopeHeadDim(to, from);
    const int64_t rank = to.rank > 0 ? to.rank : FullRank(from, width);
    config = WithLatents(from, std::vector<int64_t>(from.num_hidden_layers, rank));
    config.qk_rope_head_dim = width;
    config.latent_bias = width > 0 && from.attention_bias;
  } else {
    const bool gqa = to.attention == AttentionKind::kGqa;
    config = WithGroups(from, to.attention, gqa ? to.groups : from.num_attention_heads);
  }
  const bool folds = to.attention == AttentionKind::kMla || HasCommonBases(to, from);
  if (folds && from.attention_bias) SetOutputBias(config);
  return config;
}

void CheckConversion(const Checkpoint& from, const ConversionSpec& to, const std::string& source) {
  const auto refuse = [&](const std::string& what) { throw LoadError(source + ": " + what); };
  const ModelConfig& config = from.config;
  if (config.attention == AttentionKind::kMla) {
    refuse("attention is \"mla\", which cannot be converted; allowed: \"mha\", \"gqa\"");
  }
  const int64_t stored_groups = config.num_key_value_heads;
  if (to.attention == AttentionKind::kGqa &&
      (to.groups < 1 || to.groups > stored_groups || stored_groups % to.groups != 0)) {
    refuse("groups " + std::to_string(to.groups) + " must divide its " +
           std::to_string(stored_groups) + " key/value heads");
  }
  const bool rotary = config.position_embedding == PositionEmbedding::kRope;
  const bool pools = MethodOf(to, config, /*has_text=*/false) == ConversionMethod::kPool;
  if (config.qk_norm &&
      (to.attention == AttentionKind::kMla || (to.attention == AttentionKind::kGqa && !pools))) {
    refuse(
        "qk_norm is true: normed keys are no product of the weights; allowed: attention \"mha\", "
        "or \"gqa\" with method \"pool\"");
  }
  if (to.attention == AttentionKind::kGqa && rotary && !pools) {
    refuse("position_embedding is \"rope\": method \"" + std::string(Name(*to.method)) +
           "\" needs keys that are not rotated; allowed: \"pool\"");
  }
  if (to.attention == AttentionKind::kMla) {
    const int64_t widest = stored_groups * config.head_dim, pairs = config.head_dim / 2;
    const int64_t width = RopeHeadDim(to, config);
    if (rotary && (width < 2 || width > widest || width % 2 != 0)) {
      refuse("decoupled rotary keys of width " + std::to_string(width) +
             " are out of range; allowed: even ones from 2 to " + std::to_string(widest) +
             ", at which nothing is lost");
    }
    if (!rotary && width != 0) {
      refuse("position_embedding is \"" + std::string(Name(config.position_embedding)) +
             "\": keys that are not rotated need no decoupled ones of width " +
             std::to_string(width));
    }
    if (to.fold < 1 || (rotary ? pairs % to.fold != 0 : to.fold != 1)) {
      refuse(std::to_string(to.fold) + " frequencies cannot be mixed as one; allowed: " +
             (rotary ? "what divides " + std::to_string(pairs) + ", the pairs of a key"
                     : "1 where keys are not rotated"));
    }
    const int64_t full = FullRank(config, width);
    if (to.rank < 0 || to.rank > full) {
      refuse("rank " + std::to_string(to.rank) + " is out of range; allowed: 1 to " +
             std::to_string(full) + ", at which nothing is lost");
    }
  }
  for (const auto& [name, tensor] : from.weights) {
    if (!at::isfinite(tensor).all().item<bool>()) {
      refuse("tensor " + name + " holds a value that is not finite");
    }
  }
}

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
    const at::Tensor& keys = from.weights.at(prefix + "k_proj.weight");
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
    if (decoupled.defined()) AddDecoupled(from, decoupled.mixes[layer], prefix, to);
    for (const char* name : kKeyValueTensors) to.weights.erase(prefix + name);
  }
  return to;
}

Checkpoint Convert(const Checkpoint& from, const ConversionSpec& to, const std::string& source) {
  CheckConversion(from, to, source);
  return ConvertLayers(from, to, FindDecoupledKeys(from, to));
}

int64_t ConversionBytes(const ModelConfig& from) {
  constexpr int64_t kCopies = 4 * 8;
  return kCopies * 2 * (from.num_attention_heads + from.num_key_value_heads) * from.head_dim *
         from.hidden_size;
}

ConvertedSource::ConvertedSource(std::unique_ptr<CheckpointReader> from, const ConversionSpec& to,
                                 TensorFormat format, const std::string& source)
    : from_(std::move(from)), to_(to), format_(format), source_(source) {
  const ModelConfig& stored = from_->config();
  CheckConversion({.config = stored, .weights = {}}, to, source);
  const int64_t layers = stored.num_hidden_layers;
  if (RopeHeadDim(to, stored) > 0) {
    Checkpoint keys{.config = stored, .weights = {}};
    for (int64_t layer = 0; layer < layers; ++layer) {
      keys.weights.merge(from_->Take(AttentionPrefix(layer) + "k_proj"));
    }
    decoupled_ = FindDecoupledKeys(keys, to);
  }
  Checkpoint first = ConvertLayer(0, from_->Take(AttentionPrefix(0)));
  first_ = std::move(first.weights);
  config_ = std::move(first.config);
  config_.num_hidden_layers = layers;
  if (config_.attention == AttentionKind::kMla) {
    config_.kv_lora_rank.assign(layers, int64_t{config_.kv_lora_rank.front()});
  }
}

Weights ConvertedSource::Take(const std::string& prefix) {
  Weights taken = from_->Take(prefix);
  const std::optional<int64_t> layer = LayerOf(prefix);
  if (layer && AttentionPrefix(*layer).starts_with(prefix)) {
    HeldWeights parts(std::move(taken));
    const Weights attention = parts.Take(AttentionPrefix(*layer));
    taken = parts.Take(prefix);
    taken.merge(*layer == 0 ? std::move(first_) : ConvertLayer(*layer, attention).weights);
  }
  for (auto& [name, tensor] : taken) {
    tensor = tensor.to(ToScalarType(format_));
    if (!at::isfinite(tensor).all().item<bool>()) {
      throw LoadError(source_ + ": tensor " + name +
                      ", converted, holds numbers that are not finite in " +
                      std::string(Name(format_)) + "; allowed: finite ones");
    }
  }
  return taken;
}

Checkpoint ConvertedSource::ConvertLayer(int64_t layer, const Weights& attention) {
  Checkpoint one{.config = from_->config(), .weights = Renumbered(attention, layer, 0)};
  one.config.num_hidden_layers = 1;
  Checkpoint made = ConvertLayers(one, to_, TakeLayer(decoupled_, layer));
  made.weights = Renumbered(made.weights, 0, layer);
  return made;
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
