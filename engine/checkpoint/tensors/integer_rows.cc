#include "engine/checkpoint/tensors/integer_rows.h"

#include <algorithm>
#include <array>

#include "engine/base/bfloat16.h"
#include "engine/kernels/quantization.h"

namespace triptych::checkpoint {

IntegerRow IntegerRowOf(WeightFormat format, int64_t inputs) {
  const bool eight = format == WeightFormat::kInt8;
  return {.dtype = eight ? "I8" : "U8",
          .elements = eight ? inputs : CeilDiv(inputs, int64_t{2}),
          .scales = CeilDiv(inputs, kQuantizationGroup)};
}

std::string ScalesName(const std::string& tensor) { return tensor + "_scale"; }

void StoreRow(WeightFormat format, std::span<const float> weights, std::span<std::byte> integers,
              std::span<uint16_t> scales) {
  std::fill(integers.begin(), integers.end(), std::byte{0});
  for (size_t begin = 0; begin < weights.size(); begin += kQuantizationGroup) {
    std::array<int8_t, kQuantizationGroup> group;
    const std::span<const float> of_group =
        weights.subspan(begin, std::min<size_t>(kQuantizationGroup, weights.size() - begin));
    scales[begin / kQuantizationGroup] = kernels::Quantize(format, of_group, group);
    for (size_t i = 0; i < of_group.size(); ++i) {
      const auto bits = static_cast<std::byte>(group[i]);
      if (format == WeightFormat::kInt8) {
        integers[begin + i] = bits;
      } else {
        integers[(begin + i) / 2] |= (bits & std::byte{0xf}) << (i % 2 * 4);
      }
    }
  }
}

void ReadRow(WeightFormat format, std::span<const std::byte> integers,
             std::span<const uint16_t> scales, std::span<float> weights) {
  for (size_t i = 0; i < weights.size(); ++i) {
    const bool eight = format == WeightFormat::kInt8;
    const int half = eight ? 1 << 7 : 1 << 3;  // bits from here on are negative
    const auto bits =
        std::to_integer<int>(eight ? integers[i] : integers[i / 2] >> (i % 2 * 4) & std::byte{0xf});
    const int integer = bits >= half ? bits - 2 * half : bits;
    weights[i] = static_cast<float>(integer) * FromBFloat16(scales[i / kQuantizationGroup]);
  }
}

}  // namespace triptych::checkpoint
