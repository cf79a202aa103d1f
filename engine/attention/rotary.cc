#include "engine/attention/rotary.h"

#include <algorithm>

#include "engine/kernels/threads.h"

namespace triptych {

Rotary::Rotary(int64_t max_positions, int64_t dim, double theta, at::Device device) {
  const at::Tensor exponents = at::arange(0, dim, 2, at::kDouble) / static_cast<double>(dim);
  const at::Tensor frequencies = at::pow(at::scalar_tensor(theta, at::kDouble), -exponents);
  at::Tensor cos = at::empty({max_positions, dim / 2}, at::kDouble);
  at::Tensor sin = at::empty({max_positions, dim / 2}, at::kDouble);
  at::Tensor table = at::empty({max_positions, 2, dim / 2}, at::kFloat);
  constexpr int64_t kSlice =
      4096;  // the angles of one slice are all that is held beside the tables
  for (int64_t first = 0; first < max_positions; first += kSlice) {
    const int64_t count = std::min(kSlice, max_positions - first);
    const at::Tensor angles =
        at::arange(first, first + count, at::kDouble).unsqueeze(1) * frequencies;
    at::Tensor of_slice = cos.narrow(0, first, count);
    at::cos_out(of_slice, angles);
    of_slice = sin.narrow(0, first, count);
    at::sin_out(of_slice, angles);
    table.narrow(0, first, count).copy_(at::stack({cos.narrow(0, first, count), of_slice}, 1));
  }
  cos_ = cos.to(device);
  sin_ = sin.to(device);
  table_ = table.to(device);
}

at::Tensor Rotary::Apply(const at::Tensor& x, const at::Tensor& positions) const {
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

void Rotary::Apply(const RotatedHeads& where, const std::vector<int64_t>& positions,
                   float* x) const {
  Rotate(table_.data_ptr<float>(), positions.data(), std::ssize(positions), where, x,
         ComputePool());
}

}  // namespace triptych
