#include "engine/tools/convert.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "engine/attention/algebra.h"

namespace triptych {
namespace {

// What a conversion replaces in a layer; biases may be absent.
constexpr const char* kKeyValueTensors[] = {"k_proj.weight", "k_proj.bias", "v_proj.weight",
                                            "v_proj.bias"};

void CheckTarget(const ModelConfig& from, const ConvertTarget& target, const std::string& source) {
  const auto refuse = [&](const std::string& what) { throw LoadError(source + ": " + what); };
  if (from.attention == AttentionKind::kMla) {
    refuse("attention is \"mla\", which cannot be converted; allowed: \"mha\", \"gqa\"");
  }
  const int64_t stored_groups = from.num_key_value_heads;
  if (target.attention == AttentionKind::kGqa &&
      (target.groups < 1 || target.groups > stored_groups || stored_groups % target.groups != 0)) {
    refuse("--groups " + std::to_string(target.groups) + " must divide its " +
           std::to_string(stored_groups) + " key/value heads");
  }
  if (target.attention != AttentionKind::kMla) return;
  if (from.position_embedding == PositionEmbedding::kRope) {
    refuse("position_embedding is \"rope\": rotated keys cannot be absorbed into a latent");
  }
  const int64_t full = std::min(2 * stored_groups * from.head_dim, from.hidden_size);
  if (target.rank < 1 || target.rank > full) {
    refuse("--rank " + std::to_string(target.rank) + " is out of range; allowed: 1 to " +
           std::to_string(full));
  }
}

// A value bias adds W_O b to the output; a key bias drops out of the softmax.
void FoldValueBias(const at::Tensor& v_bias, Weights& weights, const std::string& attention) {
  at::Tensor& o_bias = weights.at(attention + "o_proj.bias");
  o_bias = o_bias + at::mv(weights.at(attention + "o_proj.weight"), v_bias);
}

}  // namespace

Checkpoint ConvertCheckpoint(const Checkpoint& from, const ConvertTarget& target,
                             const std::string& source) {
  CheckTarget(from.config, target, source);
  Checkpoint to = from;
  ModelConfig& config = to.config;
  const int64_t heads = config.num_attention_heads;
  const int64_t d = config.head_dim;
  config.attention = target.attention;
  config.num_key_value_heads = target.attention == AttentionKind::kGqa ? target.groups : heads;
  if (target.attention == AttentionKind::kMla) {
    config.kv_lora_rank.assign(config.num_hidden_layers, target.rank);
  }

  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string attention = "model.layers." + std::to_string(layer) + ".self_attn.";
    if (target.attention != AttentionKind::kMla) {
      for (const char* name : kKeyValueTensors) {
        const auto found = to.weights.find(attention + name);
        if (found == to.weights.end()) continue;
        found->second = target.attention == AttentionKind::kGqa
                            ? PoolHeads(found->second, target.groups, d)
                            : RepeatHeads(found->second, heads, d);
      }
      continue;
    }
    const at::Tensor& w_k = to.weights.at(attention + "k_proj.weight");
    const LatentFactors factors =
        FactorKeyValue(w_k, to.weights.at(attention + "v_proj.weight"), target.rank);
    const at::ScalarType dtype = w_k.scalar_type();
    const auto per_head = [&](const at::Tensor& up) {
      return RepeatHeads(up, heads, d).view({heads, d, target.rank});
    };
    to.weights[attention + "kv_a_proj_with_mqa.weight"] = factors.down.to(dtype);
    to.weights[attention + "kv_b_proj.weight"] =
        at::cat({per_head(factors.up_k), per_head(factors.up_v)}, 1).flatten(0, 1).to(dtype);
    if (config.attention_bias) {
      FoldValueBias(RepeatHeads(to.weights.at(attention + "v_proj.bias"), heads, d), to.weights,
                    attention);
    }
    for (const char* name : kKeyValueTensors) {
      to.weights.erase(attention + name);
    }
  }
  return to;
}

void Convert(const std::filesystem::path& from, const std::filesystem::path& to,
             const ConvertTarget& target) {
  const Checkpoint converted =
      ConvertCheckpoint(LoadCheckpoint(from, DType::kFloat32), target, from.string());
  SaveCheckpoint(to, converted.config, converted.weights);
  std::printf("%s: %s, %lld elements in a cache row\n", to.c_str(),
              std::string(Name(target.attention)).c_str(),
              static_cast<long long>(CacheRowElements(converted.config, 0)));
}

}  // namespace triptych
