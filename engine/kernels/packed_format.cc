#include "engine/kernels/packed_format.h"

#include <array>
#include <bit>
#include <cstring>
#include <iterator>

#include "engine/base/bfloat16.h"
#include "engine/kernels/quantization.h"

namespace triptych {
namespace {

static_assert(std::endian::native == std::endian::little);  // the order of a pair

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void Store(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof(T));
}

// Where one output's part of a step begins.
int64_t StepOffset(const PackedFormat& format, int64_t step, int64_t column) {
  return (step * kPanel + column) * format.step_bytes;
}

// Where the 16-bit word is that holds an input's four bits, and from which bit on.
struct Nibble {
  int64_t offset;
  int shift;
};
Nibble NibbleOf(int64_t input, int64_t column) {
  const int64_t pair = input / 2;
  return {.offset = StepOffset(Packed(WeightFormat::kInt4), pair / 4, column) + 2 * (input % 2),
          .shift = static_cast<int>(pair % 4 * 4)};
}

int64_t ScaleOffset(const PackedFormat& format, int64_t column) {
  return StepOffset(format, format.steps, 0) + column * format.scale_bytes;
}

}  // namespace

void PackUnit(WeightFormat format, std::span<const float> weights, int64_t column,
              std::byte* unit) {
  const PackedFormat packed = Packed(format);
  switch (format) {
    case WeightFormat::kFloat32:
      Store(weights[0], unit + StepOffset(packed, 0, column));
      return;
    case WeightFormat::kBFloat16:
      for (size_t i = 0; i < weights.size(); ++i) {
        Store(ToBFloat16(weights[i]), unit + StepOffset(packed, 0, column) + 2 * i);
      }
      return;
    case WeightFormat::kInt8:
    case WeightFormat::kInt4: {
      std::array<int8_t, kQuantizationGroup> integers;
      Store(Quantize(format, weights, integers), unit + ScaleOffset(packed, column));
      for (int64_t i = 0; i < std::ssize(weights); ++i) {
        if (format == WeightFormat::kInt8) {
          Store(integers[i], unit + StepOffset(packed, i / 2, column) + i % 2);
        } else {
          const auto [offset, shift] = NibbleOf(i, column);
          const auto word = Load<uint16_t>(unit + offset);
          Store(static_cast<uint16_t>(word | (integers[i] & 0xf) << shift), unit + offset);
        }
      }
      return;
    }
  }
}

void UnpackUnit(WeightFormat format, const std::byte* unit, int64_t column,
                std::span<float> weights) {
  const PackedFormat packed = Packed(format);
  switch (format) {
    case WeightFormat::kFloat32:
      weights[0] = Load<float>(unit + StepOffset(packed, 0, column));
      return;
    case WeightFormat::kBFloat16:
      for (size_t i = 0; i < weights.size(); ++i) {
        weights[i] = FromBFloat16(Load<uint16_t>(unit + StepOffset(packed, 0, column) + 2 * i));
      }
      return;
    case WeightFormat::kInt8:
    case WeightFormat::kInt4: {
      const float scale = FromBFloat16(Load<uint16_t>(unit + ScaleOffset(packed, column)));
      for (int64_t i = 0; i < std::ssize(weights); ++i) {
        if (format == WeightFormat::kInt8) {
          const auto integer = Load<int8_t>(unit + StepOffset(packed, i / 2, column) + i % 2);
          weights[i] = static_cast<float>(integer) * scale;
        } else {
          const auto [offset, shift] = NibbleOf(i, column);
          const int bits = Load<uint16_t>(unit + offset) >> shift & 0xf;
          weights[i] = static_cast<float>(bits >= 8 ? bits - 16 : bits) * scale;
        }
      }
      return;
    }
  }
}

}  // namespace triptych
