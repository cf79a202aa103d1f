#include "engine/checkpoint/config/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/validate_config.h"

namespace triptych::checkpoint {
namespace {

double Frequency(const ModelConfig& config, int64_t pair) {
  return std::pow(config.rope_theta,
                  -2 * static_cast<double>(pair) / static_cast<double>(config.RotaryDim()));
}

// A factor for each pair: of(i).
template <typename Of>
std::vector<double> Factors(const ModelConfig& config, Of of) {
  std::vector<double> factors;
  for (int64_t i = 0; i < config.RotaryDim() / 2; ++i) factors.push_back(of(i));
  return factors;
}

double Original(JsonFields& scaling, const ModelConfig& config) {
  return static_cast<double>(scaling.Int("original_max_position_embeddings",
                                         {1, config_limits::kPositions.high},
                                         config.max_position_embeddings));
}

// Extends the context to `factor` times `original` positions, unless it is that long already.
// `scaling`: the name of the field for the log.
void Extend(double original, double factor, const std::string& scaling, JsonFields& fields,
            ModelConfig& config) {
  const double product =
      std::min(original * factor, static_cast<double>(config_limits::kPositions.high));
  if (product <= static_cast<double>(config.max_position_embeddings)) return;
  config.max_position_embeddings = static_cast<int64_t>(product);
  fields.SetContextOrigin(std::to_string(static_cast<int64_t>(original)) + " times the factor " +
                          ShownJson(factor) + " of " + scaling);
}

// Stretches long waves by `factor`, leaves short ones, and the waves between them in proportion.
void TakeLlama3(JsonFields& scaling, ModelConfig& config) {
  const double factor = scaling.Number("factor", config_limits::kFactor);
  const double low = scaling.Number("low_freq_factor", config_limits::kFactor);
  const double high = scaling.Number("high_freq_factor", config_limits::kFactor);
  const double original = Original(scaling, config);
  if (high <= low) {
    scaling.Refuse("high_freq_factor", Json(high).dump(),
                   "it must be above low_freq_factor = " + Json(low).dump());
  }
  config.rope_factors = Factors(config, [&](int64_t pair) {
    const double waves = original * Frequency(config, pair) / (2 * std::numbers::pi);
    const double left = std::clamp((waves - low) / (high - low), 0.0, 1.0);
    return 1 / ((1 - left) / factor + left);
  });
}

// YaRN's mscale.
double Magnitude(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

struct Yarn {
  double factor;
  double original;  // positions
  double all_dim;   // mscale_all_dim; 0: absent
};

Yarn TakeYarn(JsonFields& scaling, ModelConfig& config) {
  const double factor = scaling.Number("factor", config_limits::kFactor);
  const double original = Original(scaling, config);
  const double fast = scaling.Number("beta_fast", config_limits::kFactor, 32.0);
  const double slow = scaling.Number("beta_slow", config_limits::kFactor, 1.0);
  const bool truncate = scaling.Bool("truncate", true);
  const auto dim = static_cast<double>(config.RotaryDim());
  // The dimension whose pair makes this number of turns in the original context.
  const auto dimension = [&](double turns) {
    return dim * std::log(original / (2 * std::numbers::pi * turns)) /
           (2 * std::log(config.rope_theta));
  };
  double low = dimension(fast), high = dimension(slow);
  if (truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, dim - 1);
  if (!(low <= high)) {
    scaling.Refuse("beta_slow", Json(slow).dump(),
                   "with beta_fast " + Json(fast).dump() +
                       " no pair is stretched as YaRN does; allowed: at most beta_fast, within the "
                       "turns that the model's pairs take");
  }
  if (low == high) high += 0.001;
  config.rope_factors = Factors(config, [&](int64_t pair) {
    const double stretched = std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
    return 1 / (stretched / factor + (1 - stretched));
  });

  const bool has_mscale = scaling.Has("mscale"), has_all_dim = scaling.Has("mscale_all_dim");
  if (has_mscale != has_all_dim) {
    const char* one = has_mscale ? "mscale" : "mscale_all_dim";
    scaling.RefuseUnsupported(one, scaling.Take(one, nullptr),
                              "mscale and mscale_all_dim together, or neither");
  }
  if (!has_mscale) {
    config.rope_attention_factor =
        scaling.Number("attention_factor", config_limits::kFactor, Magnitude(factor, 1));
    return {factor, original, 0};
  }
  const double mscale = scaling.Number("mscale", config_limits::kFactor);
  const double all_dim = scaling.Number("mscale_all_dim", config_limits::kFactor);
  config.rope_attention_factor =
      scaling.Number("attention_factor", config_limits::kFactor,
                     Magnitude(factor, mscale) / Magnitude(factor, all_dim));
  return {factor, original, all_dim};
}

// Implementations differ in when the long factors begin, but none uses them within the original
// context. If they differ from the short ones, that is the context. Phi's configs have
// original_max_position_embeddings in `fields`, next to rope_scaling.
void TakeLongRope(JsonFields& scaling, JsonFields& fields, ModelConfig& config) {
  constexpr const char* kOriginal = "original_max_position_embeddings";
  constexpr Range<int64_t> kLength{1, config_limits::kPositions.high};
  const auto original = static_cast<double>(scaling.Int(
      kOriginal, kLength, fields.Int(kOriginal, kLength, config.max_position_embeddings)));
  const auto most = static_cast<double>(config.max_position_embeddings);
  config.rope_factors = scaling.Numbers("short_factor");
  if (scaling.Numbers("long_factor") != config.rope_factors && most > original) {
    config.max_position_embeddings = std::max<int64_t>(static_cast<int64_t>(original), 2);
    fields.SetContextOrigin(scaling.NameOf("original_max_position_embeddings") +
                            ", beyond which long_factor is not served");
  }
  const double longer = scaling.Number("factor", config_limits::kFactor, most / original);
  config.rope_attention_factor = scaling.Number(
      "attention_factor", config_limits::kFactor,
      longer > 1 && original > 1 ? std::sqrt(1 + std::log(longer) / std::log(original)) : 1.0);
}

// The rotated elements of a head, from partial_rotary_factor, which older configs have in `fields`.
void TakeRotaryDim(JsonFields& fields, JsonFields& scaling, double share, ModelConfig& config) {
  constexpr const char* kField = "partial_rotary_factor";
  constexpr Range<double> kShare{0, 1, /*above_low=*/true};
  share = scaling.Number(kField, kShare, fields.Number(kField, kShare, share));
  const auto rotated = static_cast<int64_t>(static_cast<double>(config.head_dim) * share);
  if (rotated < 2 || rotated % 2 != 0) {
    fields.Refuse(kField, Json(share).dump(),
                  "it must rotate an even number of the " + std::to_string(config.head_dim) +
                      " elements of a head, at least 2");
  }
  config.rotary_dim = rotated == config.head_dim ? 0 : rotated;
}

constexpr const char *kScaling = "rope_scaling", *kParameters = "rope_parameters";
constexpr const char *kFullLayers = "full_attention", *kSlidingLayers = "sliding_attention";

bool IsSplit(const Json& parameters) {
  return parameters.is_object() &&
         (parameters.contains(kFullLayers) || parameters.contains(kSlidingLayers));
}

// Takes rope_scaling or rope_parameters, whose name becomes `field`. If there are parameters for
// each kind of layers, takes those of full layers and sets theta of the others.
JsonFields TakeScaling(JsonFields& fields, const char*& field, double* local_theta) {
  if (fields.Has(kScaling) && fields.Has(kParameters)) {
    fields.RefuseValue(kParameters, fields.Take(kParameters, nullptr),
                       "allowed where there is no rope_scaling");
  }
  field = fields.Has(kParameters) ? kParameters : kScaling;
  const Json given = fields.Take(field, Json::object());
  if (!given.is_object()) fields.RefuseValue(field, given, "allowed: an object, null");
  JsonFields scaling = fields.Inside(field, given);
  scaling.DropNulls();
  if (local_theta == nullptr || !IsSplit(given)) return scaling;
  JsonFields local = scaling.Inside(kSlidingLayers, scaling.Take(kSlidingLayers, nullptr));
  local.DropNulls();
  *local_theta = local.Number("rope_theta", config_limits::kRopeTheta, *local_theta);
  local.Only("rope_type", "default");
  local.Only("partial_rotary_factor", 1.0);
  local.RefuseLeftOver();
  JsonFields full = scaling.Inside(kFullLayers, scaling.Take(kFullLayers, nullptr));
  scaling.RefuseLeftOver();
  full.DropNulls();
  return full;
}

// `share`: the default of partial_rotary_factor, if the family has that field. `local_theta`: of
// layers with a window, if the family has that. YaRN's part of the result is for latent attention.
Yarn TakeRotation(JsonFields& fields, ModelConfig& config, std::optional<double> share = {},
                  double* local_theta = nullptr) {
  config.position_embedding = PositionEmbedding::kRope;
  config.rope_theta = fields.Number("rope_theta", config_limits::kRopeTheta, 10000.0);
  if (!share) fields.Only("partial_rotary_factor", 1.0);
  const char* field = nullptr;
  JsonFields scaling = TakeScaling(fields, field, local_theta);
  config.rope_theta = scaling.Number("rope_theta", config_limits::kRopeTheta, config.rope_theta);
  if (config.rope_theta <= 1) {
    fields.Refuse("rope_theta", Json(config.rope_theta).dump(), "allowed: a number above 1");
  }
  if (share) {
    TakeRotaryDim(fields, scaling, *share, config);
  } else {
    scaling.Only("partial_rotary_factor", 1.0);
  }
  const Json old_name = scaling.Take("type", "default");
  const Json type = scaling.Take("rope_type", old_name);
  const std::string named =
      fields.NameOf(field) + (type.is_string() ? " (" + type.get<std::string>() + ")" : "");
  Yarn yarn{1, 1, 0};
  if (type == "default") {
    scaling.Ignore("factor");
  } else if (type == "dynamic") {
    scaling.Ignore("factor");
    scaling.Only("original_max_position_embeddings", config.max_position_embeddings);
    fields.SetContextOrigin(fields.NameOf("max_position_embeddings") + ", beyond which " + named +
                            " is not served; \"yarn\" would extend it");
  } else if (type == "linear") {
    const double factor = scaling.Number("factor", config_limits::kFactor);
    config.rope_factors = Factors(config, [&](int64_t) { return factor; });
    Extend(Original(scaling, config), factor, named, fields, config);
  } else if (type == "llama3") {
    TakeLlama3(scaling, config);
  } else if (type == "yarn") {
    yarn = TakeYarn(scaling, config);
    Extend(yarn.original, yarn.factor, named, fields, config);
  } else if (type == "longrope" || type == "su") {  // the older name
    TakeLongRope(scaling, fields, config);
  } else {
    scaling.RefuseUnsupported("rope_type", type,
                              "\"default\", \"linear\", \"dynamic\", \"llama3\", \"yarn\", "
                              "\"longrope\"");
  }
  scaling.RefuseLeftOver();
  return yarn;
}

}  // namespace

void TakeRope(JsonFields& fields, ModelConfig& config) { TakeRotation(fields, config); }

void TakePartialRope(JsonFields& fields, double share, ModelConfig& config) {
  TakeRotation(fields, config, share);
}

double TakeSplitRope(JsonFields& fields, ModelConfig& config) {
  constexpr const char *kTheta = "rope_theta", *kLocal = "rope_local_base_freq";
  const Json parameters = fields.left_over().value(kParameters, Json());
  const Json full = IsSplit(parameters) ? parameters.value(kFullLayers, Json()) : parameters;
  if (!fields.Has(kTheta) && !(full.is_object() && full.value(kTheta, Json()).is_number())) {
    fields.RefuseMissing(kTheta);
  }
  double local = fields.Number(kLocal, config_limits::kRopeTheta, 10000.0);
  TakeRotation(fields, config, /*share=*/{}, &local);
  return local;
}

void TakeLatentRope(JsonFields& fields, ModelConfig& config) {
  const Yarn yarn = TakeRotation(fields, config);
  if (yarn.all_dim == 0) return;
  const double magnitude = Magnitude(yarn.factor, yarn.all_dim);
  config.attention_score_factor = magnitude * magnitude;
}

}  // namespace triptych::checkpoint
