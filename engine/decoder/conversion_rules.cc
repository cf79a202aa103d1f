#include "engine/decoder/conversion_rules.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "engine/base/error.h"

namespace triptych {
namespace {

// Throws LoadError about the model `source`.
struct Refuse {
  const std::string& source;
  [[noreturn]] void operator()(const std::string& why) const {
    throw LoadError(source + ": " + why);
  }
};

constexpr const char* kPartlyRotated =
    "its keys are rotated in part (rotary_dim, no_rope_layers); allowed: attention \"mha\", or "
    "\"gqa\" with method \"pool\"";

constexpr const char* kCappedScores =
    "attn_logit_softcapping or rope_local_base_freq is set, which latents do not have; allowed: "
    "attention \"mha\" or \"gqa\"";

constexpr const char* kNoWindowedLatents =
    "sliding_window is 1 or positions are learned, and latents have no windows; allowed: attention "
    "\"mha\" or \"gqa\"";

constexpr const char* kNormedKeys =
    "qk_norm is true: normed keys have no common basis; allowed: attention \"mha\", \"mla\", or "
    "\"gqa\" with method \"pool\"";

constexpr const char* kNormedBias =
    "qk_norm and attention_bias are true, and the bias of a normed key does not drop out of the "
    "softmax; allowed: attention \"mha\", or \"gqa\" with method \"pool\"";

void CheckGroups(const ModelConfig& config, const ConversionSpec& to, const Refuse& refuse) {
  const int64_t stored = config.num_key_value_heads;
  if (to.groups < 1 || to.groups > stored || stored % to.groups != 0) {
    refuse("groups " + std::to_string(to.groups) + " must divide its " + std::to_string(stored) +
           " key/value heads");
  }
  if (MethodOf(to, config, /*has_text=*/false) == ConversionMethod::kPool) return;
  if (config.qk_norm) refuse(kNormedKeys);
  if (config.position_embedding == PositionEmbedding::kRope) {
    refuse("position_embedding is \"rope\": method \"" + std::string(Name(*to.method)) +
           "\" needs keys that are not rotated; allowed: \"pool\"");
  }
}

void CheckLatents(const ModelConfig& config, const ConversionSpec& to, const Refuse& refuse) {
  if (config.qk_norm && !HasInverseNorms(config)) refuse(kNormedBias);
  if (config.RotatesInPart()) refuse(kPartlyRotated);
  if (config.attn_logit_softcapping > 0 || config.rope_local_base_freq > 0) refuse(kCappedScores);
  if (config.sliding_window == 1 ||
      (config.sliding_window > 0 && config.position_embedding == PositionEmbedding::kLearned)) {
    refuse(kNoWindowedLatents);
  }
  const bool rotary = config.position_embedding == PositionEmbedding::kRope;
  const int64_t widest = config.num_key_value_heads * config.head_dim, pairs = config.head_dim / 2;
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

}  // namespace

int64_t FullRank(const ModelConfig& config, int64_t rope_head_dim) {
  return std::min(2 * config.num_key_value_heads * config.head_dim - rope_head_dim,
                  config.hidden_size);
}

int64_t RopeHeadDim(const ConversionSpec& to, const ModelConfig& from) {
  if (to.attention != AttentionKind::kMla) return 0;
  if (to.rope_head_dim != 0 || from.position_embedding != PositionEmbedding::kRope) {
    return to.rope_head_dim;
  }
  return from.num_key_value_heads * from.head_dim;
}

bool HasCommonBases(const ConversionSpec& to, const ModelConfig& from) {
  return to.attention == AttentionKind::kGqa &&
         MethodOf(to, from, /*has_text=*/false) != ConversionMethod::kPool;
}

bool HasInverseNorms(const ModelConfig& from) {
  return from.qk_norm && !from.qk_norm_all_heads && !from.attention_bias;
}

void SetOutputBias(ModelConfig& config) {
  if (!config.OutputBias()) config.attention_output_bias = true;
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
  const ModelConfig& config = from.config;
  const Refuse refuse{source};
  if (config.attention == AttentionKind::kMla) {
    refuse("attention is \"mla\", which cannot be converted; allowed: \"mha\", \"gqa\"");
  }
  if (config.qk_norm_all_heads) {
    refuse(
        "qk_norm_all_heads is true: norms over all keys belong to the model's own number of "
        "heads; its attention cannot be converted");
  }
  if (to.attention == AttentionKind::kGqa) CheckGroups(config, to, refuse);
  if (to.attention == AttentionKind::kMla) CheckLatents(config, to, refuse);
  for (const auto& [name, tensor] : from.weights) {
    if (!at::isfinite(tensor).all().item<bool>()) {
      refuse("tensor " + name + " holds a value that is not finite");
    }
  }
}

}  // namespace triptych
