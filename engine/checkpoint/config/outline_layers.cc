#include "engine/checkpoint/config/outline_layers.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "engine/model/validate_config.h"

namespace triptych::checkpoint {
namespace {

using enum OutlineLayer;

constexpr Range<int64_t> kWindow{1, config_limits::kOptionalWindow.high};
constexpr Range<int64_t> kPeriod{1, config_limits::kLayers.high};

// The types in lists of layers.
const std::map<std::string, OutlineLayer, std::less<>>& LayerNames() {
  static const std::map<std::string, OutlineLayer, std::less<>> names = {
      {"attention", kFull},
      {"full_attention", kFull},
      {"global_attention", kFull},
      {"sliding_attention", kSliding},
      {"local_attention", kSliding},
      {"chunked_attention", kSliding},
      {"linear_attention", kState},
      {"mamba", kState},
      {"mamba2", kState},
      {"conv", kState},
      {"recurrent", kState},
      {"mlp", kNothing},
      {"moe", kNothing}};
  return names;
}

std::vector<OutlineLayer> TakeList(JsonFields& fields, const std::string& field, int64_t layers) {
  std::string allowed = "allowed:";
  for (const auto& [name, kind] : LayerNames()) {
    allowed += (allowed.back() == ':' ? " \"" : ", \"") + name + '"';
  }
  std::vector<OutlineLayer> kinds;
  const Json list = fields.List(field);
  for (const Json& name : list) {
    const auto found = name.is_string() ? LayerNames().find(name.get_ref<const std::string&>())
                                        : LayerNames().end();
    if (found == LayerNames().end()) fields.RefuseValue(field, name, allowed);
    kinds.push_back(found->second);
  }
  if (std::ssize(kinds) != layers) {
    fields.Refuse(field, "a list of " + std::to_string(kinds.size()),
                  "allowed: a list of " + std::to_string(layers) + ", one for each layer");
  }
  return kinds;
}

// One letter for each layer: Mamba, attention, an MLP or experts.
std::vector<OutlineLayer> TakePattern(JsonFields& fields, const std::string& field,
                                      int64_t layers) {
  const std::string pattern = fields.Text(field);
  std::vector<OutlineLayer> kinds;
  for (const char letter : pattern) {
    kinds.push_back(letter == 'M' ? kState : letter == '*' ? kFull : kNothing);
  }
  if (std::ssize(pattern) != layers || pattern.find_first_not_of("M*-E") != std::string::npos) {
    fields.RefuseValue(field, pattern,
                       "allowed: a letter of \"M\", \"*\", \"-\", \"E\" for each of " +
                           std::to_string(layers) + " layers");
  }
  return kinds;
}

// `listed` layers, counted from `first`, attend; the others have states.
std::vector<OutlineLayer> StatesExcept(const JsonFields& fields, const std::string& field,
                                       const Json& listed, int64_t first, int64_t layers) {
  std::vector<OutlineLayer> kinds(layers, kState);
  if (!listed.is_array()) fields.RefuseValue(field, listed, "allowed: a list of layers");
  for (const Json& layer : listed) {
    kinds[fields.CheckedInt(field, layer, {first, layers - 1 + first}) - first] = kFull;
  }
  return kinds;
}

std::vector<OutlineLayer> EveryNth(int64_t layers, int64_t period, int64_t offset,
                                   OutlineLayer other) {
  std::vector<OutlineLayer> kinds(layers, other);
  for (int64_t layer = offset; layer < layers; layer += period) kinds[layer] = kFull;
  return kinds;
}

// Layers that are no attention, by the fields of hybrid families.
std::optional<std::vector<OutlineLayer>> TakeHybrid(JsonFields& fields, int64_t layers) {
  if (fields.Has("hybrid_override_pattern")) {
    return TakePattern(fields, "hybrid_override_pattern", layers);
  }
  if (const auto field = NameIn(fields, {"layer_types", "layers_block_type"})) {
    const Json& list = fields.left_over().at(*field);
    if (!list.is_array() || !list.empty()) return TakeList(fields, *field, layers);
  }
  if (const auto every = OptionalInt(fields, {"full_attention_interval"}, kPeriod)) {
    return EveryNth(layers, *every, *every - 1, kState);
  }
  if (const auto period = OptionalInt(fields, {"attn_layer_period"}, kPeriod)) {
    const int64_t offset = RequiredInt(fields, {"attn_layer_offset"}, {0, *period - 1});
    return EveryNth(layers, *period, offset, kState);
  }
  if (fields.Has("attn_layer_indices")) {
    return StatesExcept(fields, "attn_layer_indices", fields.List("attn_layer_indices"), 0, layers);
  }
  if (fields.Has("full_attn_idxs")) {
    return StatesExcept(fields, "full_attn_idxs", fields.List("full_attn_idxs"), 0, layers);
  }
  if (fields.Has("linear_attn_config")) {
    constexpr const char* kListed = "full_attn_layers";
    const Json config = fields.Take("linear_attn_config", nullptr);
    JsonFields inside = fields.Inside("linear_attn_config", config);
    return StatesExcept(inside, kListed, inside.List(kListed), 1, layers);
  }
  if (fields.Has("attn_type_list")) {
    const Json list = fields.List("attn_type_list");
    std::vector<OutlineLayer> kinds;
    for (const Json& type : list) {
      kinds.push_back(fields.CheckedInt("attn_type_list", type, {0, 1}) == 1 ? kFull : kState);
    }
    if (std::ssize(kinds) != layers) {
      fields.RefuseValue("attn_type_list", list,
                         "allowed: 0 or 1 for each of " + std::to_string(layers) + " layers");
    }
    return kinds;
  }
  return std::nullopt;
}

// A number: every n-th layer is full. A text: a letter of each layer, repeated.
std::vector<OutlineLayer> TakeWindowPattern(JsonFields& fields, const std::string& model_type,
                                            int64_t layers) {
  constexpr const char *kField = "sliding_window_pattern", *kOther = "_sliding_window_pattern";
  const std::string field = fields.Has(kField) ? kField : kOther;
  if (fields.Has(field) && fields.left_over().at(field).is_string()) {
    const std::string pattern = fields.Text(field);
    if (pattern.empty() || pattern.find_first_not_of("LG") != std::string::npos) {
      fields.RefuseValue(field, pattern, "allowed: letters \"L\" and \"G\", or an integer");
    }
    std::vector<OutlineLayer> kinds;
    for (int64_t layer = 0; layer < layers; ++layer) {
      kinds.push_back(pattern[layer % pattern.size()] == 'G' ? kFull : kSliding);
    }
    return kinds;
  }
  std::optional<int64_t> every = OptionalInt(fields, {kField, kOther}, kPeriod);
  // Defaults of families.
  if (!every && model_type == "gemma2") every = 2;
  if (!every && model_type.starts_with("gemma3")) every = model_type.starts_with("gemma3n") ? 5 : 6;
  if (!every && model_type == "cohere2") every = 4;
  if (every) return EveryNth(layers, *every, *every - 1, kSliding);
  return std::vector<OutlineLayer>(layers, kSliding);
}

OutlineLayers TakeWindows(JsonFields& fields, const std::string& model_type, int64_t layers) {
  OutlineLayers all{std::vector<OutlineLayer>(layers, kFull)};
  if (const auto chunk = OptionalInt(fields, {"attention_chunk_size"}, kWindow)) {
    // Every fourth layer of Llama 4 attends all positions.
    return {EveryNth(layers, 4, 3, kSliding), *chunk};
  }
  const bool qwen = model_type.starts_with("qwen") || model_type == "smollm3";
  const bool uses = fields.Bool("use_sliding_window", !qwen);
  std::optional<int64_t> window =
      OptionalInt(fields, {"sliding_window", "sliding_window_size"}, kWindow);
  if (!window && model_type.starts_with("gemma2")) window = 4096;  // the family's default
  if (!window && model_type.starts_with("gemma3")) {
    window = model_type.starts_with("gemma3n") ? 512 : 4096;
  }
  if (!uses || !window) return all;
  if (qwen) {
    const int64_t from = OptionalInt(fields, {"max_window_layers"}, {0, 1 << 20}).value_or(28);
    std::fill(all.layers.begin() + std::min(from, layers), all.layers.end(), kSliding);
    all.window = *window;
    return all;
  }
  return {TakeWindowPattern(fields, model_type, layers), *window};
}

// Layers that attend the rows of earlier ones.
void ShareRows(JsonFields& fields, OutlineLayers& all) {
  const auto layers = std::ssize(all.layers);
  const int64_t last = OptionalInt(fields, {"num_kv_shared_layers"}, {0, layers - 1}).value_or(0);
  const bool cross = fields.Bool("use_cla", fields.Has("cla_share_factor"));
  const int64_t factor = OptionalInt(fields, {"cla_share_factor"}, kPeriod).value_or(1);
  for (int64_t layer = 0; layer < layers; ++layer) {
    OutlineLayer& kind = all.layers[layer];
    if (kind != kFull && kind != kSliding) continue;
    if (layer >= layers - last || (cross && layer % factor != 0)) kind = kShared;
  }
}

}  // namespace

int64_t OutlineLayers::Count(OutlineLayer kind) const {
  return std::count(layers.begin(), layers.end(), kind);
}

std::optional<std::string> NameIn(const JsonFields& fields,
                                  std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (fields.Has(name)) return name;
  }
  return std::nullopt;
}

std::optional<int64_t> OptionalInt(JsonFields& fields, std::initializer_list<const char*> names,
                                   const Range<int64_t>& range) {
  const std::optional<std::string> name = NameIn(fields, names);
  if (!name) return std::nullopt;
  return fields.Int(*name, range);
}

int64_t RequiredInt(JsonFields& fields, std::initializer_list<const char*> names,
                    const Range<int64_t>& range) {
  const std::optional<int64_t> value = OptionalInt(fields, names, range);
  if (!value) fields.RefuseMissing(*names.begin());
  return *value;
}

OutlineLayers TakeOutlineLayers(JsonFields& fields, const std::string& model_type, int64_t layers) {
  // Fields by which layers cache in ways that this does not know.
  for (const char* field :
       {"compress_ratios", "global_head_dim", "block_types", "_block_types", "block_configs",
        "cross_attention_layers", "cli_factor", "fa_interval"}) {
    if (!fields.Has(field)) continue;
    fields.RefuseValue(field, fields.left_over().at(field),
                       "the cache of such layers is not known; supported: without it");
  }
  OutlineLayers all = TakeWindows(fields, model_type, layers);
  if (std::optional<std::vector<OutlineLayer>> kinds = TakeHybrid(fields, layers)) {
    all.layers = std::move(*kinds);
    if (all.window == 0 && all.Count(kSliding) > 0) {
      // Named, but switched off or without a width.
      std::replace(all.layers.begin(), all.layers.end(), kSliding, kFull);
    }
  }
  ShareRows(fields, all);
  return all;
}

}  // namespace triptych::checkpoint
