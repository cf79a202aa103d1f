#include "engine/decoder/weights.h"

namespace triptych {

at::ScalarType ToScalarType(TensorFormat format) {
  switch (format) {
    case TensorFormat::kFloat32:
      return at::kFloat;
    case TensorFormat::kBFloat16:
      return at::kBFloat16;
  }
  return {};
}

at::ScalarType ToScalarType(CacheFormat format) {
  switch (format) {
    case CacheFormat::kFloat32:
      return at::kFloat;
    case CacheFormat::kBFloat16:
      return at::kBFloat16;
    case CacheFormat::kInt8:
    case CacheFormat::kInt4:
      return at::kChar;
  }
  return {};
}

at::ScalarType ToScalarType(ComputeType type) {
  switch (type) {
    case ComputeType::kFloat32:
      return at::kFloat;
    case ComputeType::kBFloat16:
      return at::kBFloat16;
    case ComputeType::kFloat64:
      return at::kDouble;
  }
  return {};
}

Weights TakePrefixed(Weights& weights, const std::string& prefix) {
  Weights taken;
  for (auto it = weights.lower_bound(prefix);
       it != weights.end() && it->first.starts_with(prefix);) {
    taken.insert(weights.extract(it++));
  }
  return taken;
}

}  // namespace triptych
