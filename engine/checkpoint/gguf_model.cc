#include "engine/checkpoint/gguf_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/parse.h"
#include "engine/base/quoted.h"
#include "engine/checkpoint/config_file.h"
#include "engine/checkpoint/mapped_tensors.h"

namespace triptych {
namespace {

constexpr const char* kArchitecture = "general.architecture";
constexpr const char* kEmbedding = "token_embd.weight";
constexpr const char* kOutput = "output.weight";
constexpr const char* kFactors = "rope_freqs.weight";

// A key after "ARCHITECTURE." and the field of config.json that says the same.
struct SameField {
  const char* key;
  const char* field;
  bool required = true;
};
constexpr SameField kLlamaFields[] = {
    {"block_count", "num_hidden_layers"},
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads", false},
    {"attention.key_length", "head_dim", false},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"rope.freq_base", "rope_theta", false}};
constexpr SameField kGpt2Fields[] = {{"block_count", "n_layer"},
                                     {"context_length", "n_positions"},
                                     {"embedding_length", "n_embd"},
                                     {"feed_forward_length", "n_inner"},
                                     {"attention.head_count", "n_head"},
                                     {"attention.layer_norm_epsilon", "layer_norm_epsilon"}};

struct Architecture {
  const char* name;  // of the family in config.json, too
  std::span<const SameField> fields;
  bool rotates = true;
  // Rows of queries and keys are put in another order by what makes these files: rotary pairs are
  // (2i, 2i + 1), not as they are published.
  bool interleaves = false;
};
constexpr Architecture kArchitectures[] = {{"llama", kLlamaFields, true, true},
                                           {"qwen2", kLlamaFields},
                                           {"qwen3", kLlamaFields},
                                           {"gpt2", kGpt2Fields, false}};

const Architecture& ArchitectureOf(const GgufFile& file) {
  const auto found = file.metadata().find(kArchitecture);
  std::string supported = "supported:";
  for (const Architecture& known : kArchitectures) {
    if (found != file.metadata().end() && *found == known.name) return known;
    supported += (supported.back() == ':' ? " \"" : ", \"") + std::string(known.name) + '"';
  }
  throw LoadError(file.name() + ": " + kArchitecture + " is " +
                  (found == file.metadata().end() ? "missing" : ShownJson(*found)) + "; " +
                  supported);
}

const StoredTensor& FindTensor(const GgufFile& file, const char* name) {
  const StoredTensor* const stored = file.Find(name);
  if (stored == nullptr) throw LoadError(file.name() + ": tensor " + name + " is missing");
  return *stored;
}

bool HasLayerTensor(const GgufFile& file, const std::string& name) {
  return file.Find("blk.0." + name) != nullptr;
}

std::string NameOfMostNumbers(const GgufFile& file) {
  std::map<std::string, uint64_t> bytes;
  for (const std::string& name : file.TensorNames()) {
    const StoredTensor& stored = *file.Find(name);
    bytes[stored.dtype] += stored.bytes;
  }
  const auto most = std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) {
    return a.second < b.second;
  });
  if (most == bytes.end() || most->first == "F32") return "float32";
  return most->first == "F16" ? "float16" : "bfloat16";
}

// By how much each rotary frequency is divided where a model of Llama 3's has been given a longer
// context, and what that is in config.json: low_freq_factor 1 and high_freq_factor 4, as all that
// are published have.
// Formula: transformers, modeling_rope_utils.py, _compute_llama3_parameters.
class Llama3Scaling {
 public:
  // factors: of all frequencies theta^(-2i/d), from the fastest on
  Llama3Scaling(std::span<const float> factors, double theta)
      : factor_(*std::max_element(factors.begin(), factors.end())) {
    const auto pairs = static_cast<double>(factors.size());
    for (size_t i = 0; i < factors.size(); ++i) {
      const double length =
          2 * std::numbers::pi * std::pow(theta, static_cast<double>(i) / pairs);
      // Between the ends the factor says how long the context was.
      if (factors[i] > 1 && factors[i] < factor_) {
        const double smooth = (1 / double{factors[i]} - 1 / factor_) / (1 - 1 / factor_);
        context_ = std::round(length * (kLow + smooth * (kHigh - kLow)));
      }
    }
    matches_ = true;
    for (size_t i = 0; i < factors.size(); ++i) {
      const double length =
          2 * std::numbers::pi * std::pow(theta, static_cast<double>(i) / pairs);
      const double smooth =
          std::clamp((context_ / length - kLow) / (kHigh - kLow), 0.0, 1.0);
      const double expected = 1 / ((1 - smooth) / factor_ + smooth);
      matches_ &= std::abs(factors[i] - expected) < 1e-3 * expected;
    }
  }

  bool matches() const { return matches_; }
  Json ToJson() const {
    return {{"rope_type", "llama3"},
            {"factor", factor_},
            {"low_freq_factor", kLow},
            {"high_freq_factor", kHigh},
            {"original_max_position_embeddings", static_cast<int64_t>(context_)}};
  }

 private:
  static constexpr double kLow = 1;
  static constexpr double kHigh = 4;

  double factor_;
  double context_ = 8192;
  bool matches_;
};

std::vector<float> ReadFactors(const GgufFile& file) {
  const StoredTensor& stored = FindTensor(file, kFactors);
  if (stored.dtype != "F32" || stored.shape.size() != 1 || stored.bytes == 0) {
    throw LoadError(file.name() + ": tensor " + kFactors + " is no list of numbers in F32");
  }
  std::vector<float> factors(stored.bytes / sizeof(float));
  file.Read(kFactors, std::as_writable_bytes(std::span(factors)));
  return factors;
}

// The rope_scaling of a config; null if there is none.
Json TakeScaling(const GgufFile& file, const std::string& prefix, JsonFields& keys) {
  const std::string type_key = prefix + "rope.scaling.type";
  keys.Take(prefix + "rope.scaling.finetuned", false);  // how it was made
  const Json type = keys.Take(type_key, "linear");
  const Json old_factor = keys.Take(prefix + "rope.scale_linear", 1.0);
  const Json factor = keys.Take(prefix + "rope.scaling.factor", old_factor);
  if (type != "none" && type != "linear") {
    keys.RefuseValue(type_key, type, "supported: \"none\", \"linear\", or tensor rope_freqs.weight");
  }
  const bool linear = type == "linear" && factor != 0 && factor != 1;
  if (file.Find(kFactors) == nullptr) {
    return linear ? Json{{"rope_type", "linear"}, {"factor", factor}} : Json();
  }
  const std::vector<float> factors = ReadFactors(file);
  if (std::all_of(factors.begin(), factors.end(), [](float it) { return it == 1; })) return Json();
  const double theta = keys.Has(prefix + "rope.freq_base")
                           ? keys.PositiveNumber(prefix + "rope.freq_base", 1e12)
                           : 10000.0;
  const Llama3Scaling scaling(factors, theta);
  if (linear || !scaling.matches()) {
    throw LoadError(file.name() + ": tensor " + kFactors +
                    " holds a scaling that is not supported; supported: Llama 3's, with "
                    "low_freq_factor 1 and high_freq_factor 4, alone");
  }
  return scaling.ToJson();
}

}  // namespace

}  // namespace triptych
