#include "engine/decoder/converted_source.h"

#include <ATen/ATen.h>

#include <optional>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/decoder/conversion_rules.h"
#include "engine/decoder/convert_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/model/tensor_names.h"
#include "engine/model/validate_config.h"

namespace triptych {
namespace {

// Takes the decoupled keys of one layer.
DecoupledKeys TakeLayer(DecoupledKeys& all, int64_t layer) {
  if (!all.defined()) return {};
  return {.frequencies = all.frequencies,
          .mixes = {std::exchange(all.mixes[layer], {})},
          .energy_kept = {all.energy_kept[layer]}};
}

// The attention tensors of layer `from` under the names of layer `to`.
Weights Renumbered(const Weights& weights, int64_t from, int64_t to) {
  Weights renumbered;
  for (const auto& [name, tensor] : weights) {
    renumbered.emplace(AttentionPrefix(to) + name.substr(AttentionPrefix(from).size()), tensor);
  }
  return renumbered;
}

}  // namespace

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
      keys.weights.merge(from_->Take(AttentionPrefix(layer) + "k_norm"));
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
  Validate(config_, {.file = source + ", converted"});
}

Weights ConvertedSource::Take(const std::string& prefix) {
  Weights taken = from_->Take(prefix);
  const std::optional<int64_t> layer = LayerOf(prefix);
  if (layer && AttentionPrefix(*layer).starts_with(prefix)) {
    const Weights attention = TakePrefixed(taken, AttentionPrefix(*layer));
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
  Checkpoint made = ConvertChecked(one, to_, TakeLayer(decoupled_, layer));
  made.weights = Renumbered(made.weights, 0, layer);
  return made;
}

}  // namespace triptych
