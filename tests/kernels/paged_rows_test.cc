#include "engine/kernels/paged_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/base/ceil_div.h"
#include "engine/kernels/elements.h"

namespace triptych::kernels::paged_rows_test {
namespace {

// Sequences whose rows are written in several runs, over scattered blocks. Blocks without a
// sequence and unwritten positions are NaN at first.
template <typename Element>
class Cache {
 public:
  static constexpr int64_t kWidth = 11;
  static constexpr int64_t kStride = kWidth + 2;  // between input rows

  explicit Cache(int64_t block_positions, int64_t sequences, int64_t positions)
      : block_positions_(block_positions), positions_(positions) {
    std::mt19937_64 generator(1);
    const int64_t blocks = CeilDiv(positions, block_positions);
    std::vector<int32_t> all(sequences * blocks + 2);
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), generator);
    for (int64_t i = 0; i < sequences; ++i) {
      blocks_.emplace_back(all.begin() + i * blocks, all.begin() + (i + 1) * blocks);
    }
    elements_.assign(std::ssize(all) * kWidth * block_positions,
                     FromFloat<Element>(std::numeric_limits<float>::quiet_NaN()));
    std::normal_distribution<float> normal;
    rows_.resize(sequences * positions * kStride);
    for (float& value : rows_) value = normal(generator);
  }

  // The input row of a position.
  const float* row(int64_t sequence, int64_t position) const {
    return &rows_[(sequence * positions_ + position) * kStride];
  }
  Element At(int64_t sequence, int64_t position, int64_t element) const {
    const int64_t block = blocks_[sequence][position / block_positions_];
    return elements_[(block * kWidth + element) * block_positions_ + position % block_positions_];
  }
  TokenRun Run(int64_t sequence, int64_t start, int64_t count) const {
    return {blocks_[sequence].data(), start, count};
  }
  PagedCache View() {
    const bool narrow = std::is_same_v<Element, uint16_t>;
    return {elements_.data(), narrow ? CacheFormat::kBFloat16 : CacheFormat::kFloat32, kWidth,
            block_positions_};
  }
  const std::vector<Element>& elements() const { return elements_; }

 private:
  int64_t block_positions_;
  int64_t positions_;
  std::vector<std::vector<int32_t>> blocks_;  // by sequence
  std::vector<Element> elements_;
  std::vector<float> rows_;  // [sequences, positions, kStride]
};

template <typename Element>
void ExpectWhatWasWritten() {
  constexpr int64_t kSequences = 3, kPositions = 75, kWidth = Cache<Element>::kWidth;
  for (const int64_t block_positions : {1, 4, 5, 16, 24, 32}) {
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(testing::Message()
                   << block_positions << " positions, " << threads << " threads");
      KernelContext context(threads);
      Cache<Element> cache(block_positions, kSequences, kPositions);
      // Each step has up to three runs, two of them of one sequence.
      for (const auto& [start, count] : std::vector<std::pair<int64_t, int64_t>>{
               {0, 1}, {1, 6}, {7, 9}, {16, 1}, {17, 40}, {57, 18}}) {
        std::vector<TokenRun> runs;
        std::vector<float> rows;
        const auto add = [&](int64_t sequence, int64_t from, int64_t tokens) {
          if (tokens == 0) return;
          runs.push_back(cache.Run(sequence, from, tokens));
          rows.insert(rows.end(), cache.row(sequence, from),
                      cache.row(sequence, from) + tokens * Cache<Element>::kStride);
        };
        add(0, start, count / 2);
        add(0, start + count / 2, count - count / 2);
        add(2, start, count);
        WritePagedRows(rows.data(), Cache<Element>::kStride, runs, cache.View(), context);
      }
      for (const int64_t sequence : {0, 2}) {
        std::vector<float> read(kPositions * kWidth + 1, 12345.0f);
        ReadPagedRows(cache.View(), cache.Run(sequence, 0, kPositions), read.data());
        EXPECT_EQ(read.back(), 12345.0f);
        for (int64_t i = 0; i < kPositions * kWidth; ++i) {
          const auto expected = FromFloat<Element>(cache.row(sequence, i / kWidth)[i % kWidth]);
          ASSERT_EQ(cache.At(sequence, i / kWidth, i % kWidth), expected);
          ASSERT_EQ(read[i], ToFloat(expected));
        }
      }
      // A part of the positions, from the first and from within a block.
      for (const int64_t start : {0, 19}) {
        std::vector<float> few(7 * kWidth + 1, 12345.0f);
        ReadPagedRows(cache.View(), cache.Run(2, start, 7), few.data());
        EXPECT_EQ(few.back(), 12345.0f);
        for (int64_t i = 0; i < 7 * kWidth; ++i) {
          const float* const row = cache.row(2, start + i / kWidth);
          ASSERT_EQ(few[i], ToFloat(FromFloat<Element>(row[i % kWidth])));
        }
      }
      // The other sequence is unchanged.
      for (int64_t p = 0; p < kPositions; ++p) {
        for (int64_t c = 0; c < kWidth; ++c) {
          ASSERT_TRUE(std::isnan(ToFloat(cache.At(1, p, c))));
        }
      }
    }
  }
}

TEST(PagedRows, Float32RowsAreWhatWasWritten) { ExpectWhatWasWritten<float>(); }
TEST(PagedRows, BFloat16RowsAreWhatWasWritten) { ExpectWhatWasWritten<uint16_t>(); }

// Integers by their definition, for rows written in any order; neighbouring rows do not change.
//   bytes: of a row
void ExpectRoundedByGroups(CacheFormat format, float most, int64_t bytes, int64_t wide = 0) {
  constexpr int64_t kWidth = 75, kPositions = 40;  // without wide numbers, groups of 32, 32 and 11
  const int64_t elements = kWidth + wide;
  // Wide numbers come first, each as two elements.
  const auto number_of = [&](int64_t element) {
    return element < 2 * wide ? kWidth - wide + element / 2 : element - 2 * wide;
  };
  std::mt19937_64 generator(3);
  std::normal_distribution<float> normal;
  std::vector<float> rows(kPositions * kWidth);
  for (float& value : rows) value = normal(generator);
  std::fill_n(&rows[3 * kWidth + 32], 32, 0.0f);
  std::fill_n(&rows[4 * kWidth + 32], 32, 0x1p-120f);
  rows[5 * kWidth + 70] = std::numeric_limits<float>::infinity();
  rows[6 * kWidth + 1] = std::numeric_limits<float>::quiet_NaN();
  rows[7 * kWidth + 40] = -1e30f;
  for (const int64_t block_positions : {1, 5, 16, 32}) {
    for (const int threads : {1, 3}) {
      KernelContext context(threads);
      std::vector<int32_t> blocks(CeilDiv(kPositions, block_positions));
      std::iota(blocks.rbegin(), blocks.rend(), 1);
      const PagedCache shape{.elements = nullptr,
                             .format = format,
                             .row_width = kWidth,
                             .block_positions = block_positions,
                             .wide = wide};
      ASSERT_EQ(shape.block_bytes(), block_positions * bytes);
      std::vector<int8_t> memory((std::ssize(blocks) + 2) * shape.block_bytes(), 77);
      PagedCache cache = shape;
      cache.elements = memory.data();
      for (const auto& [start, count] :
           std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 20}, {21, 19}}) {
        const TokenRun run{blocks.data(), start, count};
        WritePagedRows(&rows[start * kWidth], kWidth, {&run, 1}, cache, context);
      }
      const int64_t block_bytes = shape.block_bytes();
      EXPECT_TRUE(std::all_of(memory.begin(), memory.begin() + block_bytes,
                              [](int8_t byte) { return byte == 77; }));
      EXPECT_TRUE(std::all_of(memory.end() - block_bytes, memory.end(),
                              [](int8_t byte) { return byte == 77; }));
      std::vector<float> read(kPositions * kWidth);
      ReadPagedRows(cache, {blocks.data(), 0, kPositions}, read.data());
      for (int64_t p = 0; p < kPositions; ++p) {
        for (int64_t begin = 0; begin < elements; begin += 32) {
          const int64_t end = std::min<int64_t>(begin + 32, elements);
          float largest = 0;
          bool finite = true;
          for (int64_t c = begin; c < end; ++c) {
            const float value = rows[p * kWidth + number_of(c)];
            largest = std::max(largest, std::abs(value));
            finite = finite && std::isfinite(value);
          }
          for (int64_t c = begin; c < end; ++c) {
            // A step is changed by up to 2^-9 of it when its scale is rounded to bfloat16.
            const float step = largest / most * (1 + 0x1p-8f) / (c < 2 * wide ? 16 : 1);
            const int64_t number = p * kWidth + number_of(c);
            const float value = rows[number], found = read[number];
            if (!finite) {
              ASSERT_TRUE(std::isnan(found)) << p << ", " << c;
            } else if (largest < 0x1p-100f) {
              ASSERT_EQ(found, 0) << p << ", " << c;
            } else {
              // The largest itself can be clipped by its scale's rounding.
              ASSERT_NEAR(found, value, step * 0.5001f + largest * 0x1p-9f) << p << ", " << c;
            }
          }
        }
      }
    }
  }
}

TEST(PagedRows, Int8RowsAreRoundedByGroups) {
  ExpectRoundedByGroups(CacheFormat::kInt8, 127, 76 + 3 * 2);
}
TEST(PagedRows, Int4RowsAreRoundedByGroups) {
  ExpectRoundedByGroups(CacheFormat::kInt4, 7, 38 + 3 * 2);
}
// Groups of 32 halves, of 12 halves and 20 others, and of 32 and 1 others.
TEST(PagedRows, WideNumbersHaveEightBits) {
  ExpectRoundedByGroups(CacheFormat::kInt4, 7, 50 + 4 * 2, /*wide=*/22);
}

// The rotation spreads one large number over its group, and keeps a row's length.
TEST(PagedRows, Int4RowsAreRotatedBeforeTheyAreRounded) {
  constexpr int64_t kWidth = 64;
  std::vector<float> row(kWidth), read(kWidth);
  std::mt19937_64 generator(4);
  std::normal_distribution<float> normal;
  for (float& value : row) value = normal(generator);
  row[5] = 40;
  const auto error = [&](int64_t rotation) {
    KernelContext context(1);
    std::vector<std::byte> memory(16 * RowBytes(CacheFormat::kInt4, kWidth));
    const PagedCache cache{memory.data(), CacheFormat::kInt4, kWidth, 16, rotation};
    const int32_t block = 0;
    const TokenRun run{&block, 0, 1};
    WritePagedRows(row.data(), kWidth, {&run, 1}, cache, context);
    ReadPagedRows(cache, run, read.data());
    float sum = 0;
    for (int64_t c = 0; c < kWidth; ++c) sum += (read[c] - row[c]) * (read[c] - row[c]);
    return sum;
  };
  EXPECT_LT(error(32), 0.3f * error(1));
  EXPECT_EQ(CacheRotation(CacheFormat::kInt4, 576), 32);
  EXPECT_EQ(CacheRotation(CacheFormat::kInt4, 72), 8);
  EXPECT_EQ(CacheRotation(CacheFormat::kInt4, 25), 1);
  EXPECT_EQ(CacheRotation(CacheFormat::kInt8, 64), 1);
}

// Elements that attention reads after the last position are zero, so that they add nothing.
TEST(PagedRows, TheRestOfAPanelIsZero) {
  KernelContext context(2);
  Cache<float> cache(/*block_positions=*/32, /*sequences=*/1, /*positions=*/32);
  const TokenRun run = cache.Run(0, 0, 18);
  WritePagedRows(cache.row(0, 0), Cache<float>::kStride, {&run, 1}, cache.View(), context);
  for (int64_t p = 18; p < 32; ++p) {
    for (int64_t c = 0; c < Cache<float>::kWidth; ++c) EXPECT_EQ(cache.At(0, p, c), 0);
  }
}

TEST(PagedRows, NoRunsIsNothing) {
  KernelContext context(2);
  Cache<float> cache(16, 1, 16);
  WritePagedRows(nullptr, 0, {}, cache.View(), context);
  for (const float element : cache.elements()) EXPECT_TRUE(std::isnan(element));
}

}  // namespace
}  // namespace triptych::kernels::paged_rows_test
