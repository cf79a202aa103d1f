// What the tensors of a layer are called. Torch-free.
#ifndef TRIPTYCH_ENGINE_MODEL_TENSOR_NAMES_H_
#define TRIPTYCH_ENGINE_MODEL_TENSOR_NAMES_H_

#include <cstdint>
#include <string>

namespace triptych {

// What the names of all layers' tensors begin with, and no others'.
inline constexpr const char* kLayersPrefix = "model.layers.";
// What the names of a layer's tensors begin with: "model.layers.N.".
inline std::string LayerPrefix(int64_t layer) {
  return kLayersPrefix + std::to_string(layer) + ".";
}

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_MODEL_TENSOR_NAMES_H_
