#include "engine/model/conversion.h"

namespace triptych {

std::string_view Name(ConversionMethod method) {
  switch (method) {
    case ConversionMethod::kWeight:
      return "weight";
    case ConversionMethod::kActivation:
      return "activation";
    case ConversionMethod::kPool:
      return "pool";
  }
  return {};
}

ConversionMethod MethodOf(const Conversion& to, const ModelConfig& from, bool has_text) {
  if (to.method) return *to.method;
  if (to.attention == AttentionKind::kGqa && from.position_embedding == PositionEmbedding::kRope) {
    return ConversionMethod::kPool;
  }
  return has_text ? ConversionMethod::kActivation : ConversionMethod::kWeight;
}

}  // namespace triptych
