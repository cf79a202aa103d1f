#include "engine/kernels/packed_format.h"

#include <array>
#include <bit>
#include <cstring>
#include <iterator>

#include "engine/base/bfloat16.h"
#include "engine/kernels/quantization.h"

namespace triptych::kernels {
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

// Offset of one output's part of a step.
int64_t StepOffset(const PackedFormat& format, int64_t step, int64_t column) {
  return (step * kPanel + column) * format.step_bytes;
}

// The byte that holds an input's bits, and the lowest of these bits.
struct Place {
  int64_t offset;
  int shift;
};
Place PlaceOf(WeightFormat format, int64_t input, int64_t column) {
  const PackedFormat packed = Packed(format);
  const int64_t of_step = packed.inputs / packed.steps;
  const bool upper = input % of_step >= packed.step_bytes;  // half of a byte
  return {.offset = StepOffset(packed, input / of_step, column) + input % packed.step_bytes,
          .shift = upper ? PackedBits(format) : 0};
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
      std::array<uint8_t, kQuantizationGroup> bits{};
      for (size_t i = 0; i < weights.size(); ++i) {
        bits[i] = static_cast<uint8_t>(integers[i] + PackedZero(format));
      }
      const int64_t of_step = packed.inputs / packed.steps;
      for (int64_t step = 0; step < packed.steps; ++step) {
        std::array<uint8_t, 4> word;
        for (size_t i = 0; i < word.size(); ++i) {
          const uint8_t* const input = &bits[step * of_step + i];
          word[i] = format == WeightFormat::kInt8 ? input[0] : input[0] | input[4] << 4;
        }
        Store(word, unit + StepOffset(packed, step, column));
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
        const auto [offset, shift] = PlaceOf(format, i, column);
        const int bits =
            std::to_integer<int>(unit[offset]) >> shift & ((1 << PackedBits(format)) - 1);
        weights[i] = static_cast<float>(bits - PackedZero(format)) * scale;
      }
      return;
    }
  }
}

}  // namespace triptych::kernels
