#include "engine/checkpoint/tensors/block_formats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/base/bfloat16.h"
#include "engine/base/file.h"
#include "engine/base/float16.h"
#include "engine/base/formats.h"
#include "engine/base/json.h"
#include "engine/checkpoint/tensors/integer_rows.h"

namespace triptych::checkpoint::block_formats_test {
namespace {

using Block = std::vector<uint8_t>;

// ---- Reference: each number by itself, in float64
// ------------------------------------------------

double Half(const Block& block, int at) {
  uint16_t bits = 0;
  std::memcpy(&bits, &block[at], sizeof(bits));
  return FromFloat16(bits);
}

int Nibble(const Block& block, int at, int i) {
  return block[at + i % 16] >> (i < 16 ? 0 : 4) & 0xf;
}

int Bit(const Block& block, int at, int i) { return block[at + i / 8] >> i % 8 & 1; }

constexpr int kTable[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// The six-bit scale (or offset) of 32 numbers in Q4_K and Q5_K, from bits of the 12 bytes at 4.
double SixBits(const Block& block, int part, bool offset) {
  const uint8_t* const bytes = &block[4];
  if (part < 4) return bytes[part + (offset ? 4 : 0)] % 64;
  const int low = offset ? bytes[part + 4] / 16 : bytes[part + 4] % 16;
  return low + bytes[part - 4 + (offset ? 4 : 0)] / 64 * 16;
}

// Two bits of number i in Q2_K, Q3_K and Q6_K: 32 bytes of each half, which hold four quarters.
int Pair(const Block& block, int at, int i) {
  return block[at + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

double NumberOfQ3K(const Block& block, int i) {
  const int scale = i / 16;
  const int low = block[96 + scale % 8] >> (scale < 8 ? 0 : 4) & 0xf;
  const int high = block[104 + scale % 4] >> scale / 4 * 2 & 3;
  const int integer = Pair(block, 32, i) - ((block[i % 32] >> i / 32 & 1) == 0 ? 4 : 0);
  return Half(block, 108) * (low + 16 * high - 32) * integer;
}

double NumberOfQ6K(const Block& block, int i) {
  const int in_half = i % 128;
  const int low = block[i / 128 * 64 + in_half % 64] >> (in_half < 64 ? 0 : 4) & 0xf;
  return Half(block, 208) * static_cast<int8_t>(block[192 + i / 16]) *
         (low + 16 * Pair(block, 128, i) - 32);
}

double NumberOfIq4Xs(const Block& block, int i) {
  const int part = i / 32;
  const int low = block[4 + part / 2] >> part % 2 * 4 & 0xf;
  const int high = block[2 + part / 4] >> part % 4 * 2 & 3;
  return Half(block, 0) * (low + 16 * high - 32) * kTable[Nibble(block, 8 + part * 16, i % 32)];
}

const std::map<std::string, std::function<double(const Block&, int)>>& References() {
  static const std::map<std::string, std::function<double(const Block&, int)>> references = {
      {"Q4_0", [](const Block& b, int i) { return Half(b, 0) * (Nibble(b, 2, i) - 8); }},
      {"Q4_1", [](const Block& b, int i) { return Half(b, 0) * Nibble(b, 4, i) + Half(b, 2); }},
      {"Q5_0", [](const Block& b,
                  int i) { return Half(b, 0) * (Nibble(b, 6, i) + 16 * Bit(b, 2, i) - 16); }},
      {"Q5_1",
       [](const Block& b, int i) {
         return Half(b, 0) * (Nibble(b, 8, i) + 16 * Bit(b, 4, i)) + Half(b, 2);
       }},
      {"Q8_0", [](const Block& b, int i) { return Half(b, 0) * static_cast<int8_t>(b[2 + i]); }},
      {"Q2_K",
       [](const Block& b, int i) {
         return Half(b, 80) * (b[i / 16] % 16) * Pair(b, 16, i) - Half(b, 82) * (b[i / 16] / 16);
       }},
      {"Q3_K", NumberOfQ3K},
      {"Q4_K",
       [](const Block& b, int i) {
         const int integer = b[16 + i / 64 * 32 + i % 32] >> (i % 64 < 32 ? 0 : 4) & 0xf;
         return Half(b, 0) * SixBits(b, i / 32, false) * integer -
                Half(b, 2) * SixBits(b, i / 32, true);
       }},
      {"Q5_K",
       [](const Block& b, int i) {
         const int low = b[48 + i / 64 * 32 + i % 32] >> (i % 64 < 32 ? 0 : 4) & 0xf;
         const int integer = low + 16 * (b[16 + i % 32] >> i / 32 & 1);
         return Half(b, 0) * SixBits(b, i / 32, false) * integer -
                Half(b, 2) * SixBits(b, i / 32, true);
       }},
      {"Q6_K", NumberOfQ6K},
      {"IQ4_NL", [](const Block& b, int i) { return Half(b, 0) * kTable[Nibble(b, 2, i)]; }},
      {"IQ4_XS", NumberOfIq4Xs}};
  return references;
}

// Offsets in a block of its numbers in float16.
std::vector<int> Halves(const std::string& name) {
  static const std::map<std::string, std::vector<int>> offsets = {
      {"Q4_1", {0, 2}},   {"Q5_1", {0, 2}}, {"Q4_K", {0, 2}}, {"Q5_K", {0, 2}},
      {"Q2_K", {80, 82}}, {"Q3_K", {108}},  {"Q6_K", {208}}};
  const auto found = offsets.find(name);
  return found == offsets.end() ? std::vector<int>{0} : found->second;
}

std::vector<float> Decoded(const BlockFormat& format, const Block& blocks) {
  std::vector<float> numbers(blocks.size() / format.bytes * format.numbers);
  DecodeBlocks(format, std::as_bytes(std::span(blocks)), numbers);
  return numbers;
}

Block FromHex(const std::string& hex) {
  Block bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// Blocks that llama.cpp's quantizer wrote, and the numbers that it reads from them.
Json Recorded() { return Json::parse(ReadText(TRIPTYCH_RECORDED_BLOCKS, uint64_t{1} << 20)); }

TEST(BlockFormatsTest, RecordedBlocksHaveTheirNumbers) {
  size_t formats = 0;
  for (const Json& recorded : Recorded()) {
    const auto name = recorded.at("type").get<std::string>();
    const BlockFormat* const format = FindBlockFormat(name);
    ASSERT_NE(format, nullptr) << name;
    const Block block = FromHex(recorded.at("block").get<std::string>());
    ASSERT_EQ(std::ssize(block), format->bytes) << name;
    EXPECT_EQ(Decoded(*format, block), recorded.at("numbers").get<std::vector<float>>()) << name;
    ++formats;
  }
  EXPECT_EQ(formats, BlockFormats().size());
}

TEST(BlockFormatsTest, EveryBlockIsAsInFloat64) {
  std::mt19937 random(3);
  for (const BlockFormat& format : BlockFormats()) {
    const auto& reference = References().at(format.name);
    for (int round = 0; round < 200; ++round) {
      Block block(format.bytes);
      for (uint8_t& byte : block) byte = static_cast<uint8_t>(random());
      for (const int at : Halves(format.name)) {  // of any sign, from 2^-10 to 2^5
        block[at + 1] = static_cast<uint8_t>((block[at + 1] & 0x83) | (5 + random() % 15) << 2);
      }
      const std::vector<float> numbers = Decoded(format, block);
      for (int i = 0; i < format.numbers; ++i) {
        ASSERT_EQ(numbers[i], static_cast<float>(reference(block, i))) << format.name << " " << i;
      }
    }
  }
}

TEST(BlockFormatsTest, BlocksFollowOneAnother) {
  for (const BlockFormat& format : BlockFormats()) {
    Block both(2 * format.bytes, 0x2a);
    both[format.bytes + Halves(format.name).front()] = 0x55;
    const std::vector<float> numbers = Decoded(format, both);
    for (const int64_t block : {0, 1}) {
      const Block one(both.begin() + block * format.bytes,
                      both.begin() + (block + 1) * format.bytes);
      EXPECT_EQ(Decoded(format, one),
                std::vector<float>(numbers.begin() + block * format.numbers,
                                   numbers.begin() + (block + 1) * format.numbers))
          << format.name;
    }
  }
}

TEST(BlockFormatsTest, AScaleThatIsNotFiniteShows) {
  for (const BlockFormat& format : BlockFormats()) {
    Block block(format.bytes, 0xff);  // every float16 is NaN
    for (const float number : Decoded(format, block)) EXPECT_TRUE(std::isnan(number));
  }
}

// int8 and int4 hold the integers of Q8_0 and Q4_0, all with the same sign or all with the other;
// scales are rounded to bfloat16.
TEST(BlockFormatsTest, IntegersOfEightAndFourBitsPassIntoRows) {
  for (const auto& [name, served] :
       {std::pair{"Q8_0", WeightFormat::kInt8}, {"Q4_0", WeightFormat::kInt4}}) {
    for (const Json& recorded : Recorded()) {
      if (recorded.at("type") != name) continue;
      const Block block = FromHex(recorded.at("block").get<std::string>());
      const std::vector<float> numbers = Decoded(*FindBlockFormat(name), block);
      const IntegerRow row = IntegerRowOf(served, std::ssize(numbers));
      std::vector<std::byte> integers(row.elements);
      std::vector<uint16_t> scales(row.scales);
      StoreRow(served, numbers, integers, scales);
      std::vector<float> stored(numbers.size());
      ReadRow(served, integers, scales, stored);
      const float scale = FromBFloat16(ToBFloat16(static_cast<float>(Half(block, 0))));
      EXPECT_EQ(std::abs(FromBFloat16(scales[0])), std::abs(scale)) << name;
      for (int i = 0; i < 32; ++i) {
        const int integer = served == WeightFormat::kInt8 ? static_cast<int8_t>(block[2 + i])
                                                          : Nibble(block, 2, i) - 8;
        EXPECT_EQ(stored[i], scale * static_cast<float>(integer)) << name << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace triptych::checkpoint::block_formats_test
