// Memory layout of packed weights, for packing, unpacking, the kernels of every instruction set and
// the accounting of bytes.
//
// A panel has 32 outputs. Its weights are stored in units along the inputs. Per output, a unit has:
//   float32   one input
//   bfloat16  a pair of inputs
//   int8      32 inputs, four (one step) to a 32-bit word, the first in its lowest byte; then the
//             outputs' scales
//   int4      32 inputs, eight (one step) to a 32-bit word: byte i has input i in its lower half
//             and input 4 + i in its upper one; then the outputs' scales
// Integers are stored unsigned: their value plus PackedZero.
// Padding beyond the last input or output is zero bits. As an integer that is the least value, but
// it meets inputs that are zero or has a scale of zero.
#ifndef TRIPTYCH_ENGINE_KERNELS_PACKED_FORMAT_H_
#define TRIPTYCH_ENGINE_KERNELS_PACKED_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/base/ceil_div.h"
#include "engine/base/formats.h"

namespace triptych::kernels {

inline constexpr int64_t kPanel = 32;     // outputs that are computed together
inline constexpr int64_t kWordBytes = 4;  // of a word of prepared inputs

struct PackedFormat {
  int64_t inputs;       // of a unit
  int64_t steps;        // of a unit; each has step_bytes per output
  int64_t step_bytes;   // of one output
  int64_t scale_bytes;  // of one output, after the steps

  constexpr int64_t panel_bytes() const { return kPanel * (steps * step_bytes + scale_bytes); }
};

constexpr PackedFormat Packed(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat32:
      return {.inputs = 1, .steps = 1, .step_bytes = 4, .scale_bytes = 0};
    case WeightFormat::kBFloat16:
      return {.inputs = 2, .steps = 1, .step_bytes = 4, .scale_bytes = 0};
    case WeightFormat::kInt8:
      return {.inputs = kQuantizationGroup, .steps = 8, .step_bytes = 4, .scale_bytes = 2};
    case WeightFormat::kInt4:
      return {.inputs = kQuantizationGroup, .steps = 4, .step_bytes = 4, .scale_bytes = 2};
  }
  return {};
}

// Bits of a stored integer, and the value added to it. REQUIRES: an integer format.
constexpr int PackedBits(WeightFormat format) {
  const PackedFormat packed = Packed(format);
  return static_cast<int>(8 * packed.steps * packed.step_bytes / packed.inputs);
}
constexpr int PackedZero(WeightFormat format) { return 1 << (PackedBits(format) - 1); }

// Bytes of `groups` packed matrices, including the bias of each output.
constexpr int64_t PackedBytes(WeightFormat format, int64_t groups, int64_t outputs,
                              int64_t inputs) {
  const PackedFormat packed = Packed(format);
  const int64_t units = CeilDiv(inputs, packed.inputs);
  return groups * CeilDiv(outputs, kPanel) *
         (units * packed.panel_bytes() + kPanel * static_cast<int64_t>(sizeof(float)));
}

// Writes at most a unit's weights of one output into a unit of its panel, rounded to the format.
//   column: the output in the panel, 0 to kPanel - 1
//   unit: [panel_bytes()], zero where nothing was written yet
void PackUnit(WeightFormat format, std::span<const float> weights, int64_t column, std::byte* unit);

// Reads back the rounded weights that PackUnit wrote, exactly.
//   weights: at most a unit's
void UnpackUnit(WeightFormat format, const std::byte* unit, int64_t column,
                std::span<float> weights);

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_PACKED_FORMAT_H_
