// Names of the tensors of layers.
#ifndef TRIPTYCH_ENGINE_MODEL_TENSOR_NAMES_H_
#define TRIPTYCH_ENGINE_MODEL_TENSOR_NAMES_H_

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace triptych {

// Prefix of the names of all layers' tensors, and of no others.
inline constexpr const char* kLayersPrefix = "model.layers.";
// Prefix of the names of a layer's tensors: "model.layers.N.".
inline std::string LayerPrefix(int64_t layer) {
  return kLayersPrefix + std::to_string(layer) + ".";
}
// The layer of a tensor's name or prefix; none if it is not of a layer.
inline std::optional<int64_t> LayerOf(std::string_view name) {
  constexpr std::string_view kBefore = kLayersPrefix;
  if (!name.starts_with(kBefore)) return std::nullopt;
  name.remove_prefix(kBefore.size());
  int64_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  if (error != std::errc()) return std::nullopt;
  return layer;
}

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_MODEL_TENSOR_NAMES_H_
