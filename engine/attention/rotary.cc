#include "engine/attention/rotary.h"

#include <ATen/ATen.h>

namespace triptych {

Rotary::Rotary(int64_t max_positions, int64_t dim, double theta, at::Device device,
               const std::vector<double>& factors, double magnitude, int64_t width) {
  const at::Tensor exponents = at::arange(0, dim, 2, at::kDouble) / static_cast<double>(dim);
  at::Tensor frequencies = at::pow(at::scalar_tensor(theta, at::kDouble), -exponents);
  if (!factors.empty()) frequencies = frequencies / at::tensor(factors, at::kDouble);
  const at::Tensor angles =
      at::arange(max_positions, at::kDouble).unsqueeze(1) * frequencies;  // [positions, dim / 2]
  cos_ = angles.cos() * magnitude;
  sin_ = angles.sin() * magnitude;
  if (width > dim) {
    const int64_t still = (width - dim) / 2;
    cos_ = at::cat({cos_, at::ones({max_positions, still}, at::kDouble)}, 1);
    sin_ = at::cat({sin_, at::zeros({max_positions, still}, at::kDouble)}, 1);
  }
  cos_ = cos_.to(device);
  sin_ = sin_.to(device);
}

at::Tensor Rotary::Apply(const at::Tensor& x, const at::Tensor& positions) const {
  if (!defined()) return x;
  const at::ScalarType dtype = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor pairs = x.to(dtype).unflatten(-1, {-1, 2});  // [..., length, heads, dim / 2, 2]
  // [length, 1, dim / 2], the same for every head.
  const at::Tensor cos = cos_.index_select(0, positions).to(dtype).unsqueeze(1);
  const at::Tensor sin = sin_.index_select(0, positions).to(dtype).unsqueeze(1);
  const at::Tensor even = pairs.select(-1, 0);
  const at::Tensor odd = pairs.select(-1, 1);
  return at::stack({even * cos - odd * sin, even * sin + odd * cos}, -1)
      .flatten(-2)
      .to(x.scalar_type());
}

at::Tensor Rotary::Table() const {
  return defined() ? at::stack({cos_, sin_}, 1).to(at::kFloat).cpu() : at::Tensor();
}

}  // namespace triptych
