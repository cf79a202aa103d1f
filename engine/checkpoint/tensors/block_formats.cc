#include "engine/checkpoint/tensors/block_formats.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/base/float16.h"

namespace triptych::checkpoint {
namespace {

using Bytes = const uint8_t*;

constexpr int64_t kSmall = 32;   // numbers of a block with one scale
constexpr int64_t kLarge = 256;  // numbers of a block with scales of 16 or 32 numbers each

float HalfAt(Bytes at) {
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return FromFloat16(bits);
}

// ---- Blocks of 32 ------------------------------------------------------------------------------

void DecodeQ80(Bytes block, float* numbers) {
  const float scale = HalfAt(block);
  for (int64_t i = 0; i < kSmall; ++i) {
    numbers[i] = scale * static_cast<float>(static_cast<int8_t>(block[2 + i]));
  }
}

// Low nibbles are the first half of the numbers.
void DecodeNibbles(Bytes nibbles, float scale, float offset, float* numbers) {
  for (int64_t i = 0; i < kSmall / 2; ++i) {
    numbers[i] = scale * static_cast<float>(nibbles[i] & 0xf) + offset;
    numbers[kSmall / 2 + i] = scale * static_cast<float>(nibbles[i] >> 4) + offset;
  }
}

void DecodeQ40(Bytes block, float* numbers) {
  const float scale = HalfAt(block);
  DecodeNibbles(block + 2, scale, -8 * scale, numbers);
}

void DecodeQ41(Bytes block, float* numbers) {
  DecodeNibbles(block + 4, HalfAt(block), HalfAt(block + 2), numbers);
}

// `high`: the fifth bit of each number
void DecodeFiveBits(Bytes high, Bytes nibbles, float scale, float offset, float* numbers) {
  uint32_t bits = 0;
  std::memcpy(&bits, high, sizeof(bits));
  for (int64_t i = 0; i < kSmall / 2; ++i) {
    const uint32_t first = (nibbles[i] & 0xfU) | (bits >> i & 1U) << 4;
    const uint32_t second = (nibbles[i] >> 4U) | (bits >> (i + kSmall / 2) & 1U) << 4;
    numbers[i] = scale * static_cast<float>(first) + offset;
    numbers[kSmall / 2 + i] = scale * static_cast<float>(second) + offset;
  }
}

void DecodeQ50(Bytes block, float* numbers) {
  const float scale = HalfAt(block);
  DecodeFiveBits(block + 2, block + 6, scale, -16 * scale, numbers);
}

void DecodeQ51(Bytes block, float* numbers) {
  DecodeFiveBits(block + 4, block + 8, HalfAt(block), HalfAt(block + 2), numbers);
}

constexpr std::array<float, 16> kUneven = {-127, -104, -83, -65, -49, -35, -22, -10,
                                           1,    13,   25,  38,  53,  69,  89,  113};

void DecodeUneven(Bytes nibbles, float scale, float* numbers) {
  for (int64_t i = 0; i < kSmall / 2; ++i) {
    numbers[i] = scale * kUneven[nibbles[i] & 0xf];
    numbers[kSmall / 2 + i] = scale * kUneven[nibbles[i] >> 4];
  }
}

void DecodeIq4Nl(Bytes block, float* numbers) { DecodeUneven(block + 2, HalfAt(block), numbers); }

// ---- Blocks of 256 -----------------------------------------------------------------------------

// 64 bytes hold two bits of each number: a byte of each half of the block has the bits of numbers
// i, i + 32, i + 64 and i + 96. Scales are of 16 numbers.
constexpr int64_t kHalf = 128, kOfScale = 16;

void DecodeQ2K(Bytes block, float* numbers) {
  const Bytes scales = block, pairs = block + 16;
  const float scale = HalfAt(block + 80), offset = HalfAt(block + 82);
  for (int64_t at = 0; at < kLarge; at += kOfScale) {
    const uint8_t packed = scales[at / kOfScale];
    const float step = scale * static_cast<float>(packed & 0xf);
    const float least = offset * static_cast<float>(packed >> 4);
    const Bytes source = pairs + at / kHalf * 32 + at % 32;
    const int64_t shift = at % kHalf / 32 * 2;
    for (int64_t i = 0; i < kOfScale; ++i) {
      numbers[at + i] = step * static_cast<float>(source[i] >> shift & 3) - least;
    }
  }
}

// Six bits, less 32: the low four are in bytes 0 to 7, the high two in bytes 8 to 11.
int ScaleOfQ3K(Bytes scales, int64_t index) {
  const int low = index < 8 ? scales[index] & 0xf : scales[index - 8] >> 4;
  const int high = scales[8 + index % 4] >> (index / 4 * 2) & 3;
  return (low | high << 4) - 32;
}

void DecodeQ3K(Bytes block, float* numbers) {
  const Bytes thirds = block, pairs = block + 32, scales = block + 96;
  const float scale = HalfAt(block + 108);
  for (int64_t at = 0; at < kLarge; at += kOfScale) {
    const float step = scale * static_cast<float>(ScaleOfQ3K(scales, at / kOfScale));
    const Bytes low = pairs + at / kHalf * 32 + at % 32, high = thirds + at % 32;
    const int64_t shift = at % kHalf / 32 * 2, bit = at / 32;
    for (int64_t i = 0; i < kOfScale; ++i) {
      const int integer = (low[i] >> shift & 3) + (high[i] >> bit & 1) * 4 - 4;
      numbers[at + i] = step * static_cast<float>(integer);
    }
  }
}

// The scale and the offset of the 32 numbers `index`, six bits each.
struct SixBits {
  float scale, offset;
};
SixBits ScalesAt(Bytes scales, int64_t index) {
  if (index < 4) {
    return {static_cast<float>(scales[index] & 63), static_cast<float>(scales[index + 4] & 63)};
  }
  return {static_cast<float>((scales[index + 4] & 0xf) | scales[index - 4] >> 6 << 4),
          static_cast<float>(scales[index + 4] >> 4 | scales[index] >> 6 << 4)};
}

// Parts of integers with scales and offsets of six bits. integer(nibble, i, part): the i-th integer
// of a part, from its nibble.
template <typename Integer>
void DecodeParts(Bytes block, Bytes nibbles, float* numbers, Integer integer) {
  const Bytes scales = block + 4;
  const float scale = HalfAt(block), offset = HalfAt(block + 2);
  for (int64_t part = 0; part < kLarge / kSmall; ++part) {
    const SixBits own = ScalesAt(scales, part);
    const float step = scale * own.scale, least = offset * own.offset;
    const Bytes source = nibbles + part / 2 * kSmall;
    const int64_t shift = part % 2 * 4;
    for (int64_t i = 0; i < kSmall; ++i) {
      const int number = integer(source[i] >> shift & 0xf, i, part);
      numbers[part * kSmall + i] = step * static_cast<float>(number) - least;
    }
  }
}

void DecodeQ4K(Bytes block, float* numbers) {
  DecodeParts(block, block + 16, numbers, [](int nibble, int64_t, int64_t) { return nibble; });
}

void DecodeQ5K(Bytes block, float* numbers) {
  const Bytes fifths = block + 16;
  DecodeParts(block, block + 48, numbers, [fifths](int nibble, int64_t i, int64_t part) {
    return nibble + (fifths[i] >> part & 1) * 16;
  });
}

void DecodeQ6K(Bytes block, float* numbers) {
  const Bytes nibbles = block, pairs = block + 128, scales = block + 192;
  const float scale = HalfAt(block + 208);
  for (int64_t at = 0; at < kLarge; at += kOfScale) {
    const float step = scale * static_cast<float>(static_cast<int8_t>(scales[at / kOfScale]));
    const int64_t quarter = at % kHalf / 32;  // of a half
    const Bytes low = nibbles + at / kHalf * 64 + quarter % 2 * 32 + at % 32;
    const Bytes high = pairs + at / kHalf * 32 + at % 32;
    const int64_t low_shift = quarter / 2 * 4, high_shift = quarter * 2;
    for (int64_t i = 0; i < kOfScale; ++i) {
      const int integer = (low[i] >> low_shift & 0xf) + (high[i] >> high_shift & 3) * 16 - 32;
      numbers[at + i] = step * static_cast<float>(integer);
    }
  }
}

void DecodeIq4Xs(Bytes block, float* numbers) {
  const Bytes low = block + 4, nibbles = block + 8;
  const float scale = HalfAt(block);
  const int high = block[2] | block[3] << 8;
  for (int64_t part = 0; part < kLarge / kSmall; ++part) {
    const int own = (low[part / 2] >> (part % 2 * 4) & 0xf) | (high >> (part * 2) & 3) << 4;
    DecodeUneven(nibbles + part * kSmall / 2, scale * static_cast<float>(own - 32),
                 numbers + part * kSmall);
  }
}

template <void (*Decode)(Bytes, float*)>
void OfBytes(const std::byte* block, float* numbers) {
  Decode(reinterpret_cast<Bytes>(block), numbers);
}

constexpr std::array<BlockFormat, 12> kFormats = {{
    {"Q4_0", 2, kSmall, 18, 4, OfBytes<DecodeQ40>},
    {"Q4_1", 3, kSmall, 20, 4, OfBytes<DecodeQ41>},
    {"Q5_0", 6, kSmall, 22, 5, OfBytes<DecodeQ50>},
    {"Q5_1", 7, kSmall, 24, 5, OfBytes<DecodeQ51>},
    {"Q8_0", 8, kSmall, 34, 8, OfBytes<DecodeQ80>},
    {"Q2_K", 10, kLarge, 84, 2, OfBytes<DecodeQ2K>},
    {"Q3_K", 11, kLarge, 110, 3, OfBytes<DecodeQ3K>},
    {"Q4_K", 12, kLarge, 144, 4, OfBytes<DecodeQ4K>},
    {"Q5_K", 13, kLarge, 176, 5, OfBytes<DecodeQ5K>},
    {"Q6_K", 14, kLarge, 210, 6, OfBytes<DecodeQ6K>},
    {"IQ4_NL", 20, kSmall, 18, 4, OfBytes<DecodeIq4Nl>},
    {"IQ4_XS", 23, kLarge, 136, 4, OfBytes<DecodeIq4Xs>},
}};

}  // namespace

std::span<const BlockFormat> BlockFormats() { return kFormats; }

const BlockFormat* FindBlockFormat(std::string_view name) {
  const auto* const found = std::find_if(kFormats.begin(), kFormats.end(),
                                         [&](const auto& format) { return name == format.name; });
  return found == kFormats.end() ? nullptr : found;
}

void DecodeBlocks(const BlockFormat& format, std::span<const std::byte> blocks,
                  std::span<float> numbers) {
  const std::byte* block = blocks.data();
  for (size_t at = 0; at < numbers.size(); at += static_cast<size_t>(format.numbers)) {
    format.decode(block, numbers.data() + at);
    block += format.bytes;
  }
}

}  // namespace triptych::checkpoint
