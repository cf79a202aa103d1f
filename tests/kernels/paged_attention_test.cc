#include "engine/kernels/paged_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/base/ceil_div.h"
#include "engine/kernels/elements.h"
#include "tests/support/instruction_sets.h"

namespace triptych::kernels::paged_attention_test {
namespace {

struct Shape {
  std::string name;
  int64_t heads, groups, key_width, value_width;
  bool latent = false;  // the value is the first part of the key
  int64_t block_positions = 16;
  int64_t padding = 0;  // unused elements at the end of a row
  int64_t window = PagedScores{}.window;
  float softcap = 0;
  int64_t inverse_norms = 0;
  int64_t wide = 0;  // in int4
};

Shape WithWide(Shape shape, int64_t wide) {
  shape.name += "Wide";
  shape.wide = wide;
  return shape;
}
Shape WithNorms(Shape shape, int64_t inverse_norms) {
  shape.name += "Norms";
  shape.inverse_norms = inverse_norms;
  return shape;
}

// Prints a shape's name.
void PrintTo(const Shape& shape, std::ostream* os) { *os << shape.name; }

PagedRowLayout Layout(const Shape& s) {
  return {.heads = s.heads,
          .groups = s.groups,
          .key_width = s.key_width,
          .value_offset = s.latent ? 0 : s.groups * s.key_width,
          .value_width = s.value_width};
}

int64_t RowWidth(const Shape& s) {
  return s.groups * (s.key_width + (s.latent ? 0 : s.value_width)) + s.padding;
}

template <typename Element>
constexpr CacheFormat kFormat = std::is_same_v<Element, float>      ? CacheFormat::kFloat32
                                : std::is_same_v<Element, uint16_t> ? CacheFormat::kBFloat16
                                : std::is_same_v<Element, int8_t>   ? CacheFormat::kInt8
                                                                    : CacheFormat::kInt4;

// New tokens of a sequence of total length start + count.
struct Span {
  int64_t start;
  int64_t count;
};

// A cache of scattered blocks, in which every row without a sequence is NaN, and the queries of a
// batch.
template <typename Element>
class Batch {
 public:
  Batch(const Shape& shape, const std::vector<Span>& spans, uint64_t seed)
      : layout_(Layout(shape)),
        row_width_(RowWidth(shape)),
        inverse_norms_(shape.inverse_norms),
        wide_(std::is_same_v<Element, Int4Pair> ? shape.wide : 0),
        block_positions_(shape.block_positions),
        scores_{.scale = 1 / std::sqrt(static_cast<float>(shape.key_width)),
                .softcap = shape.softcap,
                .window = shape.window},
        spans_(spans) {
    std::mt19937_64 generator(seed);
    std::normal_distribution<float> normal;
    KernelContext context(2);
    int64_t block_count = 3;  // blocks without a sequence
    for (const Span& span : spans) block_count += Blocks(span);
    std::vector<int32_t> free(block_count);
    for (size_t i = 0; i < free.size(); ++i) free[i] = static_cast<int32_t>(i);
    std::shuffle(free.begin(), free.end(), generator);

    cache_.resize(block_count * View().block_bytes() / sizeof(Element));
    std::memset(cache_.data(), -1, block_count * View().block_bytes());  // NaN, for scales too
    for (const Span& span : spans) {
      std::vector<int32_t>& blocks = blocks_.emplace_back();
      for (int64_t i = 0; i < Blocks(span); ++i) {
        blocks.push_back(free.back());
        free.pop_back();
      }
      const int64_t positions = span.start + span.count;
      const int64_t stride = row_width_ + inverse_norms_ + 1;  // with a gap after each
      std::vector<float> rows(positions * stride);
      for (float& value : rows) value = normal(generator);
      const TokenRun run{blocks.data(), 0, positions};
      WritePagedRows(rows.data(), stride, {&run, 1}, View(), context);
      std::vector<float>& norms = norms_.emplace_back(inverse_norms_ * positions);
      ReadInverseNorms(View(), run, norms.data(), positions);
      for (int64_t i = 0; i < std::ssize(norms); ++i) {
        EXPECT_EQ(norms[i], rows[i % positions * stride + row_width_ + i / positions]);
      }
      ReadPagedRows(View(), run, numbers_.emplace_back(positions * row_width_).data());
    }
    // Blocks that are not attended have no meaning: their table entries name a block of NaN.
    for (size_t i = 0; i < spans.size(); ++i) {
      std::vector<int32_t>& table = tables_.emplace_back(blocks_[i]);
      const int64_t seen = scores_.Begin(spans[i].start) / block_positions_;
      std::fill_n(table.begin(), seen, free.back());
    }
    for (const Span& span : spans) tokens_ += span.count;
    q_.resize(tokens_ * layout_.heads * layout_.key_width);
    for (float& value : q_) value = normal(generator);
  }

  // Element c of the row of position p.
  const Element& At(const std::vector<int32_t>& blocks, int64_t p, int64_t c) const {
    const Element* const block =
        cache_.data() + blocks[p / block_positions_] * View().block_bytes() / sizeof(Element);
    return block[c * block_positions_ + p % block_positions_];
  }
  // The element's value.
  float Number(int64_t sequence, int64_t p, int64_t c) const {
    const std::vector<int32_t>& blocks = blocks_[sequence];
    if constexpr (std::is_same_v<Element, Int4Pair>) {  // as paged_rows_test checks it
      return numbers_[sequence][p * row_width_ + c];
    } else if constexpr (kHasScale<Element>) {
      const Element* const scales =
          &At(blocks, p / block_positions_ * block_positions_, 0) + View().scales_offset();
      uint16_t scale;
      std::memcpy(&scale, scales + 2 * (c / 32 * block_positions_ + p % block_positions_), 2);
      return At(blocks, p, c) * FromBFloat16(scale);
    } else {
      return ToFloat(At(blocks, p, c));
    }
  }
  Element& At(int64_t sequence, int64_t p, int64_t c) {
    return const_cast<Element&>(std::as_const(*this).At(blocks_[sequence], p, c));
  }

  std::vector<float>& q() { return q_; }

  // [tokens, heads, value_width]
  std::vector<float> Run(int threads = 3) const {
    std::vector<TokenRun> runs;
    for (size_t i = 0; i < spans_.size(); ++i) {
      runs.push_back({tables_[i].data(), spans_[i].start, spans_[i].count});
    }
    return Run(q_.data(), tokens_, runs, threads);
  }

  // One call per new token.
  std::vector<float> RunOneByOne() const {
    std::vector<float> all;
    const float* q = q_.data();
    for (size_t i = 0; i < spans_.size(); ++i) {
      for (int64_t t = 0; t < spans_[i].count; ++t) {
        const std::vector<float> out = Run(q, 1, {{tables_[i].data(), spans_[i].start + t, 1}}, 3);
        all.insert(all.end(), out.begin(), out.end());
        q += layout_.heads * layout_.key_width;
      }
    }
    return all;
  }

  // The definition in float64.
  std::vector<double> Expected() const {
    std::vector<double> out;
    const float* q = q_.data();
    for (size_t i = 0; i < spans_.size(); ++i) {
      for (int64_t t = 0; t < spans_[i].count; ++t) {
        for (int64_t h = 0; h < layout_.heads; ++h, q += layout_.key_width) {
          AttendOne(q, h, static_cast<int64_t>(i), spans_[i].start + t, out);
        }
      }
    }
    return out;
  }

 private:
  int64_t Blocks(const Span& span) const {
    return CeilDiv(span.start + span.count, block_positions_);
  }

  std::vector<float> Run(const float* q, int64_t tokens, const std::vector<TokenRun>& runs,
                         int threads) const {
    // Guard elements after the end must not change.
    const int64_t size = tokens * layout_.heads * layout_.value_width;
    std::vector<float> out(size + 64, 12345.0f);
    KernelContext context(threads);
    const int64_t q_width = layout_.heads * layout_.key_width;
    PagedAttention(q, q_width, View(), layout_, scores_, runs, out.data(),
                   layout_.heads * layout_.value_width, context);
    for (size_t i = size; i < out.size(); ++i) EXPECT_EQ(out[i], 12345.0f);
    out.resize(size);
    return out;
  }

  void AttendOne(const float* q, int64_t head, int64_t sequence, int64_t position,
                 std::vector<double>& out) const {
    const int64_t length = position + 1;
    const int64_t begin = std::max<int64_t>(length - std::min(scores_.window, length), 0);
    const int64_t group = head % layout_.groups;
    std::vector<double> weights(length);
    double largest = -std::numeric_limits<double>::infinity(), total = 0;
    for (int64_t p = begin; p < length; ++p) {
      for (int64_t c = 0; c < layout_.key_width; ++c) {
        weights[p] += q[c] * Number(sequence, p, group * layout_.key_width + c);
      }
      weights[p] *= scores_.scale;
      if (inverse_norms_ > 0) {
        const std::vector<float>& norms = norms_[sequence];
        weights[p] *= norms[head % inverse_norms_ * (std::ssize(norms) / inverse_norms_) + p];
      }
      const double cap = scores_.softcap;
      if (cap > 0) weights[p] = cap * std::tanh(weights[p] / cap);
      largest = std::max(largest, weights[p]);
    }
    for (int64_t p = begin; p < length; ++p) {
      total += weights[p] = std::exp(weights[p] - largest);
    }
    for (int64_t c = 0; c < layout_.value_width; ++c) {
      double sum = 0;
      for (int64_t p = begin; p < length; ++p) {
        const int64_t element = layout_.value_offset + group * layout_.value_width + c;
        sum += weights[p] / total * Number(sequence, p, element);
      }
      out.push_back(sum);
    }
  }

  PagedCache View() const {
    const int64_t widths[] = {row_width_ - wide_, layout_.key_width - wide_, layout_.value_offset,
                              layout_.value_width, 2 * wide_};
    const int64_t width = std::accumulate(std::begin(widths), std::end(widths), int64_t{0},
                                          [](int64_t a, int64_t b) { return std::gcd(a, b); });
    return {.elements = const_cast<Element*>(cache_.data()),
            .format = kFormat<Element>,
            .row_width = row_width_,
            .block_positions = block_positions_,
            .rotation = CacheRotation(kFormat<Element>, width),
            .wide = wide_,
            .inverse_norms = inverse_norms_};
  }

  PagedRowLayout layout_;
  int64_t row_width_;
  int64_t inverse_norms_;
  int64_t wide_;
  int64_t block_positions_;
  PagedScores scores_;
  std::vector<Span> spans_;
  std::vector<Element> cache_;
  std::vector<std::vector<int32_t>> blocks_;  // by sequence
  std::vector<std::vector<float>> numbers_;   // by sequence: [positions, row_width], as read
  std::vector<std::vector<float>> norms_;     // by sequence: [inverse_norms, positions]
  std::vector<std::vector<int32_t>> tables_;  // the same, without those before the window
  int64_t tokens_ = 0;
  std::vector<float> q_;
};

// Sums of a few hundred float32 products of unit normals; the weights sum to one.
constexpr double kTolerance = 1e-5;

void ExpectNear(const std::vector<float>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], kTolerance) << "element " << i;
  }
}

// Prefill, decode, a chunk in the middle, one position, block edges.
const std::vector<Span>& Spans() {
  static const std::vector<Span> spans = {{0, 1},   {0, 7}, {5, 1}, {3, 6},   {7, 1},  {8, 1},
                                          {130, 2}, {0, 4}, {4, 4}, {250, 9}, {600, 1}};
  return spans;
}

class PagedAttentionTest : public testing::TestWithParam<Shape> {
 protected:
  template <typename Element>
  void Check() {
    const Batch<Element> batch(GetParam(), Spans(), 1);
    const std::vector<float> out = batch.Run();
    ExpectNear(out, batch.Expected());
    // Bit-identical in every batch.
    EXPECT_EQ(batch.RunOneByOne(), out);
    EXPECT_EQ(batch.Run(), out);
  }
};

TEST_P(PagedAttentionTest, Float32RowsEqualTheDefinition) { Check<float>(); }
TEST_P(PagedAttentionTest, BFloat16RowsEqualTheDefinition) { Check<uint16_t>(); }
TEST_P(PagedAttentionTest, Int8RowsEqualTheDefinition) { Check<int8_t>(); }
TEST_P(PagedAttentionTest, Int4RowsEqualTheDefinition) { Check<Int4Pair>(); }

// Widths around 4, 8 and 16 lanes, but not multiples of them.
INSTANTIATE_TEST_SUITE_P(
    Shapes, PagedAttentionTest,
    testing::Values(
        Shape{"Smallest", 1, 1, 1, 1}, Shape{"BelowALane", 2, 2, 3, 2}, Shape{"Lanes4", 4, 2, 4, 4},
        Shape{"Lanes8", 4, 4, 8, 8}, Shape{"Lanes16", 4, 1, 16, 16},
        Shape{"Lanes16Less1", 6, 3, 15, 15}, Shape{"Lanes16More1", 6, 2, 17, 17},
        Shape{"Head32", 8, 2, 32, 32}, Shape{"Head72", 6, 3, 72, 72}, Shape{"Head20", 4, 4, 20, 20},
        Shape{"KeyWiderThanValue", 12, 4, 37, 5}, Shape{"ValueWiderThanKey", 15, 5, 6, 41},
        Shape{"OneGroupManyHeads", 33, 1, 9, 10}, Shape{"MhaOddHeads", 7, 7, 11, 13},
        Shape{"Latent", 8, 1, 50, 50, true}, Shape{"LatentDecoupled", 6, 1, 23 + 6, 23, true},
        Shape{"LatentRankOne", 3, 1, 1, 1, true}, Shape{"OneRowBlocks", 4, 2, 9, 7, false, 1},
        Shape{"WideBlocks", 4, 2, 9, 7, false, 64}, Shape{"OddBlocks", 4, 2, 9, 7, false, 3},
        Shape{"HalfPanels", 4, 2, 9, 7, false, 24}, Shape{"OddBlocks32", 4, 2, 32, 32, false, 5},
        Shape{"LatentDecoupled64", 6, 1, 64 + 32, 64, true},
        Shape{"LatentOddBlocks", 5, 1, 9, 7, true, 5}, Shape{"PaddedRows", 4, 2, 9, 7, false, 5, 3},
        WithNorms({"LatentDecoupled", 6, 1, 23 + 6, 23, true}, 3),
        WithNorms({"LatentOneForAll", 3, 1, 8, 8, true}, 1),
        WithNorms({"LatentOddBlocks", 8, 1, 9, 7, true, 5}, 2),
        WithNorms({"OneRowBlocks", 4, 1, 9, 7, true, 1}, 4),
        WithNorms({"ManyHeads", 40, 1, 33, 32, true, 48}, 8), WithNorms({"Groups", 6, 2, 9, 7}, 3),
        WithWide({"LatentDecoupled", 6, 1, 23 + 6, 23, true}, 6),
        WithWide({"LatentDecoupled64", 6, 1, 64 + 32, 64, true}, 32),
        WithWide({"LatentOddBlocks", 5, 1, 9, 7, true, 5}, 2),
        WithWide(WithNorms({"ManyHeads", 40, 1, 48, 32, true, 48}, 8), 16)),
    testing::PrintToStringParamName());

TEST(PagedAttention, EveryGroupCount) {
  for (int64_t groups = 1; groups <= 12; ++groups) {
    if (12 % groups != 0) continue;
    const Batch<float> batch({"", 12, groups, 5, 6}, Spans(), 2);
    ExpectNear(batch.Run(), batch.Expected());
  }
}

class PagedAttentionSets : public InstructionSetTest {};

TEST_P(PagedAttentionSets, EqualTheDefinition) {
  const auto check = [](const auto& batch) {
    const std::vector<float> out = batch.Run();
    ExpectNear(out, batch.Expected());
    EXPECT_EQ(batch.RunOneByOne(), out);
  };
  for (const Shape& shape :
       {Shape{"", 6, 2, 17, 13}, Shape{"", 9, 9, 8, 24}, Shape{"", 37, 1, 23, 19, true},
        Shape{"", 4, 1, 33, 32, true, 48}, Shape{"", 8, 8, 40, 40}, Shape{"", 8, 2, 40, 40},
        Shape{"", 6, 3, 7, 5, false, 24}, WithNorms({"", 8, 1, 33, 32, true, 48}, 4),
        WithNorms({"", 10, 1, 9, 7, true, 5}, 5), WithWide({"", 10, 1, 72, 64, true}, 8)}) {
    check(Batch<float>(shape, Spans(), 7));
    check(Batch<uint16_t>(shape, Spans(), 8));
    check(Batch<int8_t>(shape, Spans(), 9));
    check(Batch<Int4Pair>(shape, Spans(), 9));
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, PagedAttentionSets, testing::ValuesIn(InstructionSets()),
                         InstructionSetName);

// Windows of one position, around a panel, a block, a split and the spans, and longer than all.
TEST_P(PagedAttentionSets, EqualTheDefinitionInAWindow) {
  const auto check = [](const auto& batch) {
    const std::vector<float> out = batch.Run();
    ExpectNear(out, batch.Expected());
    EXPECT_EQ(batch.RunOneByOne(), out);
    EXPECT_EQ(batch.Run(1), out);
  };
  for (const int64_t window : {1, 2, 5, 15, 16, 17, 130, 255, 256, 257, 300, 600, 1000}) {
    for (Shape shape :
         {Shape{"", 6, 2, 17, 13}, Shape{"", 24, 1, 9, 8, false, 3},
          Shape{"", 2, 2, 8, 8, false, 48}, WithNorms({"", 8, 1, 9, 8, false, 3}, 2)}) {
      shape.window = window;
      check(Batch<float>(shape, Spans(), 10));
      check(Batch<uint16_t>(shape, Spans(), 11));
      check(Batch<int8_t>(shape, Spans(), 12));
      check(Batch<Int4Pair>(shape, Spans(), 12));
    }
  }
}

// Scores of about 1, which small caps bend and large ones leave.
TEST_P(PagedAttentionSets, EqualTheDefinitionUnderASoftcap) {
  for (const float softcap : {0.2f, 1.0f, 50.0f}) {
    for (const int64_t window : {int64_t{40}, PagedScores{}.window}) {
      const Shape shape{"", 6, 2, 17, 13, false, 16, 0, window, softcap};
      const Batch<float> batch(shape, Spans(), 13);
      const std::vector<float> out = batch.Run();
      ExpectNear(out, batch.Expected());
      EXPECT_EQ(batch.RunOneByOne(), out);
      const Batch<int8_t> narrow(shape, Spans(), 14);
      ExpectNear(narrow.Run(), narrow.Expected());
      const Batch<Int4Pair> narrower(shape, Spans(), 15);
      ExpectNear(narrower.Run(), narrower.Expected());
    }
  }
}

// A context of many splits, on pools that divide it differently.
TEST(PagedAttention, ThreadsDoNotChangeABit) {
  for (const Shape& shape :
       {Shape{"", 12, 12, 8, 8}, Shape{"", 8, 1, 16, 16, true}, Shape{"", 12, 4, 8, 8, false, 24},
        Shape{"", 12, 4, 8, 8, false, 24, 0, 700}}) {
    for (const std::vector<Span>& spans : {std::vector<Span>{{3000, 1}}, {{1500, 40}, {700, 1}}}) {
      const Batch<float> batch(shape, spans, 9);
      const std::vector<float> out = batch.Run(1);
      ExpectNear(out, batch.Expected());
      for (const int threads : {2, 3, 7}) EXPECT_EQ(batch.Run(threads), out);
    }
  }
}

TEST(PagedAttention, LargeScoresDoNotOverflow) {
  const Shape shape{"", 2, 1, 8, 8};
  Batch<float> batch(shape, {{9, 1}}, 3);
  for (int64_t p = 0; p < 10; ++p) {
    for (int64_t c = 0; c < 8; ++c) batch.At(0, p, c) *= 1e4f;  // scores of thousands: one-hot
  }
  // The largest score wins by hundreds, in float32 as in float64.
  ExpectNear(batch.Run(), batch.Expected());
}

TEST(PagedAttention, EqualScoresGiveTheMean) {
  Batch<float> batch({"", 3, 1, 6, 5}, {{40, 1}}, 4);
  for (int64_t p = 0; p <= 40; ++p) {
    for (int64_t c = 0; c < 6; ++c) batch.At(0, p, c) = 0;
  }
  ExpectNear(batch.Run(), batch.Expected());
}

TEST(PagedAttention, NoRunsIsNothing) {
  KernelContext context(2);
  const PagedCache cache{nullptr, CacheFormat::kFloat32, /*row_width=*/2, /*block_positions=*/4};
  const PagedRowLayout layout{
      .heads = 1, .groups = 1, .key_width = 1, .value_offset = 1, .value_width = 1};
  PagedAttention(nullptr, 0, cache, layout, {1}, {}, nullptr, 0, context);
}

// Controls: a row that was not written, or that belongs to another position, changes the output.

TEST(PagedAttentionControl, StaleRowIsDetected) {
  Batch<float> batch({"", 4, 2, 9, 7}, {{20, 1}, {3, 2}}, 5);
  const std::vector<double> expected = batch.Expected();
  for (int64_t c = 0; c < 9 * 2 + 7 * 2; ++c) batch.At(0, 11, c) = 0.5f;
  const std::vector<float> out = batch.Run();
  double largest = 0;
  for (size_t i = 0; i < 4 * 7; ++i) largest = std::max(largest, std::abs(out[i] - expected[i]));
  EXPECT_GE(largest, 1e-2);
  for (size_t i = 4 * 7; i < out.size(); ++i) EXPECT_NEAR(out[i], expected[i], kTolerance);
}

class PagedAttentionNaN : public InstructionSetTest {};

// NaN only in the last position's key, only in its value, and in a query.
TEST_P(PagedAttentionNaN, IsSeenInTheOutput) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float sign : {1.0f, -1.0f}) {
    for (const int64_t begin : {0, 9}) {
      Batch<float> batch({"", 2, 1, 9, 7}, {{20, 1}}, 6);
      const int64_t end = begin == 0 ? 9 : 9 + 7;
      for (int64_t c = begin; c < end; ++c) batch.At(0, 20, c) = std::copysign(nan, sign);
      EXPECT_TRUE(std::isnan(batch.Run()[0])) << "from element " << begin;
    }
    Batch<float> batch({"", 2, 1, 9, 7}, {{0, 1}}, 6);
    batch.q()[3] = std::copysign(nan, sign);
    EXPECT_TRUE(std::isnan(batch.Run()[0]));
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, PagedAttentionNaN, testing::ValuesIn(InstructionSets()),
                         InstructionSetName);

class PagedAttentionWeights : public InstructionSetTest {};

// Weights from 1 down to the smallest normal float32: position p has the score -5/8 p (to base 2:
// this scale times log2(e) is 1 in float32), and the value 2^(5/8 p) in element p.
TEST_P(PagedAttentionWeights, AreExactOverTheWholeRange) {
  constexpr int64_t kPositions = 209, kBlock = 16;
  constexpr double kZeroBelow = -125;
  const float scale = 0.69314718f, q = 1;
  const auto score = [](int64_t p) { return -0.625 * static_cast<double>(p); };
  const auto value = [&](int64_t p) {
    return static_cast<float>(std::exp2(-std::max(score(p), kZeroBelow)));
  };
  const PagedRowLayout layout{
      .heads = 1, .groups = 1, .key_width = 1, .value_offset = 1, .value_width = kPositions};
  constexpr int64_t kRowWidth = 1 + kPositions;
  std::vector<float> rows(kPositions * kRowWidth, 0.0f);
  double sum = 0;
  for (int64_t p = 0; p < kPositions; ++p) {
    rows[p * kRowWidth] = static_cast<float>(score(p));
    rows[p * kRowWidth + 1 + p] = value(p);
    sum += std::exp2(score(p));
  }
  std::vector<int32_t> blocks(CeilDiv(kPositions, kBlock));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<float> cache(std::ssize(blocks) * kBlock * kRowWidth), out(kPositions);
  KernelContext context(1);
  const PagedCache view{cache.data(), CacheFormat::kFloat32, kRowWidth, kBlock};
  const TokenRun all{blocks.data(), 0, kPositions}, last{blocks.data(), kPositions - 1, 1};
  WritePagedRows(rows.data(), kRowWidth, {&all, 1}, view, context);
  PagedAttention(&q, 1, view, layout, {scale}, {&last, 1}, out.data(), kPositions, context);
  for (int64_t p = 0; p < kPositions; ++p) {
    const double weight = score(p) < kZeroBelow ? 0 : std::exp2(score(p)) * value(p) / sum;
    EXPECT_NEAR(out[p], weight, weight * std::exp2(-20)) << p;  // a few roundings
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, PagedAttentionWeights,
                         testing::ValuesIn(InstructionSets()), InstructionSetName);

}  // namespace
}  // namespace triptych::kernels::paged_attention_test
