#include "engine/attention/dropout.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace triptych {
namespace {

// SplitMix64 (Steele et al. 2014): 64 random bits from a counter.
uint64_t Mix(uint64_t counter) {
  uint64_t z = (counter + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

// LibTorch's Bernoulli generator draws one element at a time on one thread, which takes longer than
// the layer itself. Here one draw yields four 16-bit numbers.
at::Tensor Dropout::Apply(const at::Tensor& x) {
  const auto threshold = static_cast<uint16_t>(std::lround(probability_ * 65536.0));
  if (threshold == 0) return x;
  const double kept = 1.0 - threshold / 65536.0;
  at::Tensor mask = at::empty(x.sizes(), at::kByte);
  auto* out = mask.data_ptr<uint8_t>();
  const int64_t size = mask.numel();
  for (int64_t i = 0; i < size; i += 4) {
    const uint64_t bits = Mix(seed_ + draws_++);
    for (int64_t j = i; j < std::min(i + 4, size); ++j) {
      out[j] = static_cast<uint16_t>(bits >> (16 * (j - i))) >= threshold;
    }
  }
  return x * (mask.to(x.scalar_type()) * (1.0 / kept));
}

}  // namespace triptych
