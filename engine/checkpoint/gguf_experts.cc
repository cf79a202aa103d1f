#include "engine/checkpoint/gguf_experts.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/checkpoint/tensors/decoded_tensors.h"
#include "engine/checkpoint/tensors/quantized_matrix.h"
#include "engine/model/validate_config.h"

namespace triptych::checkpoint {
namespace {

constexpr const char* kExpertCount = "expert_count";
constexpr const char* kGate = "expert_gating_func";

// Takes a key, if it is there, as a field of the config.
class KeyTaker {
 public:
  KeyTaker(JsonFields& keys, const std::string& prefix, Json& config,
           std::map<std::string, std::string>& names)
      : keys_(keys), prefix_(prefix), config_(config), names_(names) {}

  void Optional(const std::string& key, const char* field) {
    names_[field] = prefix_ + key;
    if (keys_.Has(prefix_ + key)) config_[field] = keys_.Take(prefix_ + key, nullptr);
  }
  void Required(const std::string& key, const char* field) {
    names_[field] = prefix_ + key;
    config_[field] = keys_.Take(prefix_ + key, nullptr);
  }

 private:
  JsonFields& keys_;
  const std::string& prefix_;
  Json& config_;
  std::map<std::string, std::string>& names_;
};

bool HasBias(const GgufFile& file) {
  const std::vector<std::string> names = file.TensorNames();
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.ends_with(".exp_probs_b.bias"); });
}

// Files of the first versions have no gating function: a bias then says that it is the sigmoid.
bool UsesSigmoid(const GgufFile& file, JsonFields& keys, const std::string& prefix) {
  const Json gate = keys.Take(prefix + kGate, 0);
  if (gate == 0) return HasBias(file);
  if (gate != 1 && gate != 2) {
    keys.RefuseValue(prefix + kGate, gate, "supported: 1 (softmax), 2 (sigmoid)");
  }
  return gate == 2;
}

// The key is 0.1 times the published mscale_all_dim; the published mscale has the same value.
void TakeMagnitude(JsonFields& keys, const std::string& prefix, Json& config) {
  const std::string key = prefix + "rope.scaling.yarn_log_multiplier";
  const double multiplier = keys.Number(key, {0, config_limits::kFactor.high}, 0.0);
  if (!config.contains("rope_scaling")) return;
  Json& scaling = config["rope_scaling"];
  if (scaling["rope_type"] != "yarn") return;
  if (multiplier == 0) {
    scaling["attention_factor"] = 1.0;
  } else {
    scaling["mscale"] = scaling["mscale_all_dim"] = multiplier * 10;
  }
}

void TakeDeepseekExperts(const GgufFile& file, JsonFields& keys, const std::string& prefix,
                         Json& config, std::map<std::string, std::string>& names) {
  const bool sigmoid = UsesSigmoid(file, keys, prefix);
  config["model_type"] = sigmoid ? "deepseek_v3" : "deepseek_v2";
  KeyTaker take(keys, prefix, config, names);
  config["first_k_dense_replace"] = 0;
  config["norm_topk_prob"] = false;
  config["routed_scaling_factor"] = 1.0;
  config["n_group"] = config["topk_group"] = 1;
  take.Optional(kExpertCount, "n_routed_experts");
  take.Optional("expert_used_count", "num_experts_per_tok");
  take.Optional("expert_shared_count", "n_shared_experts");
  take.Optional("expert_feed_forward_length", "moe_intermediate_size");
  take.Optional("leading_dense_block_count", "first_k_dense_replace");
  take.Optional("expert_weights_norm", "norm_topk_prob");
  take.Optional("expert_weights_scale", "routed_scaling_factor");
  take.Optional("expert_group_count", "n_group");
  take.Optional("expert_group_used_count", "topk_group");
  if (config["routed_scaling_factor"] == 0) config["routed_scaling_factor"] = 1.0;  // not used
  if (!sigmoid && config["n_group"] != 1) config["topk_method"] = "group_limited_greedy";
}

}  // namespace

bool HasGgufExperts(const GgufFile& file, const std::string& prefix) {
  const Json& metadata = file.metadata();
  const auto count = metadata.find(prefix + kExpertCount);
  return count != metadata.end() && *count != 0;
}

void TakeGgufExperts(JsonFields& keys, const std::string& prefix, Json& config,
                     std::map<std::string, std::string>& names) {
  KeyTaker take(keys, prefix, config, names);
  const Json family = config["model_type"];
  const bool qwen = family == "qwen2_moe" || family == "qwen3_moe";
  take.Required(kExpertCount, qwen || family == "olmoe" ? "num_experts" : "num_local_experts");
  take.Required("expert_used_count", "num_experts_per_tok");
  if (qwen) {
    take.Required("expert_feed_forward_length", "moe_intermediate_size");
    config["norm_topk_prob"] = family == "qwen3_moe";  // as every published model
  }
  if (family == "qwen2_moe") {
    take.Required("expert_shared_feed_forward_length", "shared_expert_intermediate_size");
  } else {
    keys.Only(prefix + "expert_shared_feed_forward_length", 0);
  }
  keys.Only(prefix + kGate, 1);
}

void TakeGgufLatents(const GgufFile& file, JsonFields& keys, const std::string& prefix,
                     Json& config, std::map<std::string, std::string>& names) {
  KeyTaker take(keys, prefix, config, names);
  const bool minicpm = config["model_type"] == "minicpm3";
  // Newer files describe a single head of latents, and name the expanded widths apart.
  const bool is_single = keys.Has(prefix + "attention.key_length_mla");
  const std::string suffix = is_single ? "_mla" : "";
  const std::string key_width = prefix + "attention.key_length" + suffix;
  const std::string groups = prefix + "attention.head_count_kv";
  keys.Only(groups, is_single ? Json(1) : config["num_attention_heads"]);
  take.Required("attention.kv_lora_rank", "kv_lora_rank");
  config["q_lora_rank"] = nullptr;
  take.Optional("attention.q_lora_rank", "q_lora_rank");
  if (config["q_lora_rank"] == 0) config["q_lora_rank"] = nullptr;
  const int64_t rotated = keys.Int(prefix + "rope.dimension_count", config_limits::kWidth);
  const int64_t width = keys.Int(key_width, config_limits::kWidth);
  if (width <= rotated) {
    keys.Refuse(key_width, std::to_string(width),
                "it must be above rope.dimension_count = " + std::to_string(rotated));
  }
  config["qk_rope_head_dim"] = rotated;
  config["qk_nope_head_dim"] = width - rotated;
  if (!minicpm) take.Required("attention.value_length" + suffix, "v_head_dim");
  for (const char* whole : {"attention.key_length", "attention.value_length"}) {
    keys.Ignore(prefix + whole);
  }
  names["qk_nope_head_dim"] = key_width + " less rope.dimension_count";
  names["qk_rope_head_dim"] = prefix + "rope.dimension_count";
  if (minicpm) {
    // The published model's, which its GGUF files do not have.
    config["scale_emb"] = 12.0;
    config["scale_depth"] = 1.4;
    config["dim_model_base"] = 256.0;
    return;
  }
  if (config["model_type"] == "plm") return;
  TakeMagnitude(keys, prefix, config);
  TakeDeepseekExperts(file, keys, prefix, config, names);
}

void AddGgufExperts(const GgufFile& file, const ModelConfig& config, const std::string& from,
                    const std::string& to, std::map<std::string, TensorOrigin>& origins) {
  const int64_t count = config.experts.n_routed_experts, width = config.hidden_size;
  const int64_t inner = config.experts.moe_intermediate_size;
  const std::string mlp = to + "mlp.", joined = from + "ffn_gate_up_exps.weight";
  origins[mlp + "gate.weight"] = {.tensor = from + "ffn_gate_inp.weight"};
  origins[mlp + "gate.e_score_correction_bias"] = {.tensor = from + "exp_probs_b.bias"};
  origins[mlp + "shared_expert_gate.weight"] = {.tensor = from + "ffn_gate_inp_shexp.weight",
                                                .as_row = true};
  for (const char* matrix : {"gate", "up", "down"}) {
    origins[mlp + "shared_experts." + matrix + "_proj.weight"] = {.tensor = from + "ffn_" + matrix +
                                                                            "_shexp.weight"};
  }
  const bool gate_and_up = file.Find(joined) != nullptr;
  for (int64_t expert = 0; expert < count; ++expert) {
    const std::string routed = mlp + "experts." + std::to_string(expert) + ".";
    const auto add = [&](const std::string& name, const std::string& tensor, int64_t first,
                         int64_t rows, int64_t of_rows) {
      origins[routed + name + "_proj.weight"] = {.tensor = tensor,
                                                 .first_row = first,
                                                 .rows = rows,
                                                 .of_rows = of_rows,
                                                 .matrix = expert,
                                                 .of_matrices = count};
    };
    for (const std::string matrix : {"gate", "up", "down"}) {
      const int64_t rows = matrix == "down" ? width : inner;
      if (gate_and_up && matrix != "down") {
        add(matrix, joined, matrix == "gate" ? 0 : inner, inner, 2 * inner);
        continue;
      }
      // The first files with experts have a tensor each.
      const std::string own = from + "ffn_" + matrix + "." + std::to_string(expert) + ".weight";
      const std::string all = from + "ffn_" + matrix + "_exps.weight";
      if (file.Find(own) != nullptr) {
        origins[routed + matrix + "_proj.weight"] = {.tensor = own};
      } else if (expert == 0 || file.Find(all) != nullptr) {  // the first names what is missing
        add(matrix, all, 0, rows, rows);
      }
    }
  }
}

std::shared_ptr<const TensorSource> JoinGgufLatents(std::shared_ptr<const TensorSource> numbers,
                                                    const ModelConfig& config) {
  std::map<std::string, DecodedOrigin> origins;
  std::set<std::string> left_out;
  const int64_t heads = config.num_attention_heads, keys = config.head_dim;
  const int64_t values = config.ValueDim();
  const auto check = [&](const std::string& name, int64_t rows, int64_t columns) {
    const StoredTensor* const stored = numbers->Find(name);
    if (stored == nullptr) throw LoadError(WhereIsPart(*numbers, name) + "is missing");
    const std::vector<int64_t> matrices = {heads, rows, columns};
    // Some converters store the heads' matrices one below the other.
    if (stored->shape == matrices || stored->shape == std::vector{heads * rows, columns}) return;
    throw LoadError(WhereIsPart(*numbers, name) + "has shape " + ShapeText(stored->shape) +
                    "; the config needs " + ShapeText(matrices));
  };
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".attn_";
    const std::string k = prefix + "k_b.weight", v = prefix + "v_b.weight";
    const std::string both = prefix + "kv_b.weight";
    if (numbers->Find(k) == nullptr && numbers->Find(v) == nullptr) continue;
    left_out.insert({k, v});
    if (numbers->Find(both) != nullptr) continue;
    const int64_t rank = config.kv_lora_rank[layer];
    check(k, rank, keys);
    check(v, values, rank);
    origins[both] = {.tensor = k,
                     .shape = {heads * (keys + values), rank},
                     // Each head's rows of W_UK, which are stored as columns, then those of W_UV.
                     .decode = [=](const TensorSource& source, uint64_t, std::span<float> joined) {
                       const std::vector<float> columns = ReadFloats(source, k),
                                                rows = ReadFloats(source, v);
                       auto to = joined.begin();
                       for (int64_t head = 0; head < heads; ++head) {
                         for (int64_t i = 0; i < keys; ++i) {
                           for (int64_t j = 0; j < rank; ++j) {
                             *to++ = columns[static_cast<size_t>((head * rank + j) * keys + i)];
                           }
                         }
                         to = std::copy_n(rows.begin() + head * values * rank, values * rank, to);
                       }
                     }};
  }
  if (left_out.empty()) return numbers;
  return std::make_shared<const DecodedTensors>(std::move(numbers), std::move(origins), left_out);
}

}  // namespace triptych::checkpoint
