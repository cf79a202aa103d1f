// Parts of the published families' definitions, in float64.
#ifndef TRIPTYCH_TESTS_SUPPORT_PUBLISHED_PARTS_H_
#define TRIPTYCH_TESTS_SUPPORT_PUBLISHED_PARTS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "engine/base/json.h"

namespace triptych::published {

using Tensors = std::map<std::string, at::Tensor>;

inline constexpr int64_t kNoWindow = std::numeric_limits<int64_t>::max();

// Whether a field is there and not null.
bool Has(const Json& config, const std::string& field);

// A field, or `otherwise` if it is absent or null.
template <typename T>
T Get(const Json& config, const std::string& field, const T& otherwise) {
  return Has(config, field) ? config.at(field).get<T>() : otherwise;
}

// An integer field; the second function's may be absent or null.
int64_t Size(const Json& config, const std::string& field);
int64_t Size(const Json& config, const std::string& field, int64_t otherwise);
// A field with different values for absence and null.
int64_t Size(const Json& config, const std::string& field, int64_t absent, int64_t null);

// A tensor in float64. Throws std::out_of_range if it is missing.
at::Tensor Find(const Tensors& tensors, const std::string& name);

// Rotation of the pairs of `dim` elements in a sequence of `length`.
struct Rotary {
  at::Tensor frequencies;  // [dim / 2] float64, in radians a position
  double magnitude = 1;    // of the cosines and sines
};
Rotary RotaryOf(const Json& config, int64_t dim, int64_t length);

// Applies an activation, given by its name in configs, element by element. Throws
// std::invalid_argument.
at::Tensor Activate(const std::string& name, const at::Tensor& x);

// The scaling of rotation: rope_scaling, or its successor rope_parameters.
Json Scaling(const Json& config);

// YaRN's attention factor for contexts longer by `factor` (section 3.4 of
// https://arxiv.org/abs/2309.00071), weighted by `weight`.
double YarnMagnitude(double factor, double weight);

// x: [length, heads, dim], each head's pairs turned by its position.
at::Tensor Rotate(const Rotary& rotary, const at::Tensor& x, bool interleaved);

// Softmax attention, in which position i sees positions i - window + 1 to i. A score s becomes
// softcap * tanh(s / softcap), if that is not 0. q: [length, H, d], k: [length, G, d],
// v: [length, G, d_v] -> [length, H * d_v].
at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                  int64_t window, double softcap = 0);

// Norms over the last dimension.
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps);
at::Tensor LayerNorm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     double eps);

}  // namespace triptych::published

#endif  // TRIPTYCH_TESTS_SUPPORT_PUBLISHED_PARTS_H_
