#include "engine/kernels/paged_attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <vector>

// Compiled once for each instruction set; the best one is chosen at run time. Sums live in arrays
// of vectors, which vectors of unknown length do not allow: such machines run the fixed-length set.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/paged_attention.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/base/ceil_div.h"
#include "engine/kernels/load-inl.h"
#include "engine/kernels/prefetch.h"

#ifndef TRIPTYCH_PAGED_ATTENTION_ONCE
#define TRIPTYCH_PAGED_ATTENTION_ONCE
namespace triptych {
namespace {

constexpr int64_t kPanel = 16;   // positions that are read together
constexpr int64_t kPanels = 16;  // of a split
constexpr int64_t kSplit = kPanel * kPanels;
constexpr int64_t kQueries = 32;  // that read a split together
// Groups are read together while they have no more queries.
constexpr int64_t kFewQueries = 16;
// Where one query reads a group, reading from memory takes longer than computing: values too are
// read in a few long streams, through the panels of many groups, and sums wait in between.
constexpr int64_t kStreams = 8;

// Some queries of consecutive groups against the positions of one split.
template <typename Row>
struct Split {
  int64_t groups;
  int64_t queries;         // of each group; groups * queries <= kQueries
  const float* q;          // [groups, queries, key_width], scaled, by log2(e) too
  const int64_t* visible;  // [queries]: how many of the positions each sees, 1 to kSplit
  int64_t panels;          // as many as any query sees
  const Row* const* keys;  // [panels] -> [groups, key_width, stride], of which kPanel are read
  // [panels] -> [groups, value_width, stride]. In memory they follow keys, and are followed by
  // `ahead` panels that are read next.
  const Row* const* values;
  int64_t ahead;  // fetched so many panels before they are read; 0: not
  int64_t stride;
  int64_t key_width;
  int64_t value_width;
  float* scores;      // [groups, queries, kSplit], scratch
  float* sums;        // [groups, value_width, kPanel], scratch where a group has one query
  float* max;         // [groups, queries]: the largest score
  float* sum;         // [groups, queries]: of 2^(score - max)
  float* const* out;  // [groups, queries] -> [value_width]: sum of 2^(score - max) value
};

}  // namespace
}  // namespace triptych
#endif  // TRIPTYCH_PAGED_ATTENTION_ONCE

HWY_BEFORE_NAMESPACE();
namespace triptych {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::CappedTag<float, kPanel>;
using FloatVec = hn::Vec<FloatTag>;

constexpr int64_t kLanes = hn::MaxLanes(FloatTag());
constexpr int kVectors = static_cast<int>(kPanel / kLanes);  // of a panel
// Sums that registers hold, next to what is multiplied.
constexpr int kSums = HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3 ? 8 : 16;

// Of how many elements one lies at the start of a line of the cache: a power of two, for where a
// stride is none, there are too many for one line.
template <typename Row>
HWY_INLINE int64_t ElementsOfLine(int64_t stride) {
  return std::max<int64_t>(kLineBytes / (stride * static_cast<int64_t>(sizeof(Row))), 1);
}

// Panels from begin to end.
struct Panels {
  int64_t begin;
  int64_t end;
};

// Scores of kRows queries from `query` on at kColumns panels from `panel` on.
template <bool kPrefetch, int kRows, int kColumns, typename Row>
void ScoreTile(const Split<Row>& s, int64_t group, int64_t query, int64_t panel) {
  const FloatTag d;
  const int64_t row = group * s.queries + query;
  const float* q = s.q + row * s.key_width;
  constexpr auto kRowBytes = static_cast<int64_t>(sizeof(Row));
  const Row* keys[kColumns];
  [[maybe_unused]] const Row* ahead[kColumns];
  [[maybe_unused]] const int64_t every = ElementsOfLine<Row>(s.stride);
  for (int c = 0; c < kColumns; ++c) {
    keys[c] = s.keys[panel + c] + group * s.key_width * s.stride;
    if constexpr (kPrefetch) {
      ahead[c] = s.keys[panel + c + s.ahead];
    }
  }
  FloatVec sums[kRows][kColumns][kVectors];
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(16)
    for (int c = 0; c < kColumns; ++c) {
      HWY_UNROLL(16)
      for (int v = 0; v < kVectors; ++v) sums[r][c][v] = hn::Zero(d);
    }
  }
  for (int64_t k = 0; k < s.key_width; ++k) {
    HWY_UNROLL(16)
    for (int c = 0; c < kColumns; ++c) {
      if constexpr (kPrefetch) {
        if ((k & (every - 1)) == 0) {
          Prefetch(ahead[c], (group * s.key_width + k) * s.stride * kRowBytes);
        }
      }
      HWY_UNROLL(16)
      for (int v = 0; v < kVectors; ++v) {
        const FloatVec key = LoadFloats(d, keys[c] + k * s.stride + v * kLanes);
        HWY_UNROLL(16)
        for (int r = 0; r < kRows; ++r) {
          sums[r][c][v] = hn::MulAdd(hn::Set(d, q[r * s.key_width + k]), key, sums[r][c][v]);
        }
      }
    }
  }
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    float* scores = s.scores + (row + r) * kSplit + panel * kPanel;
    HWY_UNROLL(16)
    for (int c = 0; c < kColumns; ++c) {
      HWY_UNROLL(16)
      for (int v = 0; v < kVectors; ++v) {
        hn::StoreU(sums[r][c][v], d, scores + c * kPanel + v * kLanes);
      }
    }
  }
}

// The next smaller tile of queries.
constexpr int Fewer(int rows) { return rows > 4 ? rows / 2 : rows - 1; }

// kColumns panels at a time and then fewer.
template <bool kPrefetch, int kRows, int kColumns, typename Row>
HWY_INLINE void ScorePanels(const Split<Row>& s, Panels panels, int64_t group, int64_t query) {
  for (; panels.begin + kColumns <= panels.end; panels.begin += kColumns) {
    ScoreTile<kPrefetch, kRows, kColumns>(s, group, query, panels.begin);
  }
  if constexpr (kColumns > 1) ScorePanels<kPrefetch, kRows, kColumns / 2>(s, panels, group, query);
}

// kRows queries at a time and then fewer.
template <bool kPrefetch, int kRows, typename Row>
HWY_INLINE void ScoreQueries(const Split<Row>& s, Panels panels, int64_t group, int64_t query) {
  constexpr unsigned kFit = std::clamp<int>(kSums / (kRows * kVectors), 1, kStreams);
  constexpr int kColumns = std::bit_floor(kFit);
  for (; query + kRows <= s.queries; query += kRows) {
    if (query == 0) {  // the others find what it fetched
      ScorePanels<kPrefetch, kRows, kColumns>(s, panels, group, query);
    } else {
      ScorePanels<false, kRows, kColumns>(s, panels, group, query);
    }
  }
  if constexpr (kRows > 1) ScoreQueries<kPrefetch, Fewer(kRows)>(s, panels, group, query);
}

// 2^x for x <= 0, zero where that is no normal number; NaN of NaN.
HWY_INLINE FloatVec PowerOfTwo(FloatVec x) {
  const FloatTag d;
  // Beside so large a number a sum has no fraction: its last bits are the nearest whole number plus
  // 127, the bias of an exponent.
  const FloatVec shift = hn::Set(d, 0x1.8p23f + 127);
  const FloatVec shifted = hn::Add(x, shift);
  const FloatVec f = hn::Sub(x, hn::Sub(shifted, shift));  // -1/2 to 1/2
  // Interpolates 2^f at the seven Chebyshev nodes: a relative error of 3e-9, before rounding.
  FloatVec power = hn::Set(d, 1.5461444699e-4f);
  power = hn::MulAdd(power, f, hn::Set(d, 1.3400428178e-3f));
  power = hn::MulAdd(power, f, hn::Set(d, 9.6180566785e-3f));
  power = hn::MulAdd(power, f, hn::Set(d, 5.5503272267e-2f));
  power = hn::MulAdd(power, f, hn::Set(d, 2.4022650922e-1f));
  power = hn::MulAdd(power, f, hn::Set(d, 6.9314720670e-1f));
  power = hn::MulAdd(power, f, hn::Set(d, 1.0f));
  const hn::RebindToUnsigned<FloatTag> bits;
  const FloatVec scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(bits, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -125.0f)), hn::Mul(power, scale));
}

// scores: [panels * kPanel], of which `visible` become 2^(score - max) and the others zero.
HWY_INLINE void Exponentiate(float* scores, int64_t visible, int64_t panels, float* max,
                             float* sum) {
  const FloatTag d;
  const auto load = [&](int64_t i, float beyond) {
    const FloatVec x = hn::LoadU(d, scores + i);
    if (i + kLanes <= visible) return x;
    return hn::IfThenElse(hn::FirstN(d, std::max<int64_t>(visible - i, 0)), x, hn::Set(d, beyond));
  };
  FloatVec largest = load(0, -INFINITY);
  for (int64_t i = kLanes; i < visible; i += kLanes) largest = hn::Max(largest, load(i, -INFINITY));
  largest = hn::MaxOfLanes(d, largest);
  FloatVec total = hn::Zero(d);
  int64_t i = 0;
  for (; i < visible; i += kLanes) {
    FloatVec power = PowerOfTwo(hn::Sub(hn::LoadU(d, scores + i), largest));
    if (i + kLanes > visible) power = hn::IfThenElseZero(hn::FirstN(d, visible - i), power);
    total = hn::Add(total, power);
    hn::StoreU(power, d, scores + i);
  }
  for (; i < panels * kPanel; i += kLanes) hn::StoreU(hn::Zero(d), d, scores + i);
  *max = hn::GetLane(largest);
  *sum = hn::GetLane(hn::SumOfLanes(d, total));
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void StoreSums(FloatVec a, FloatVec b, FloatVec c, FloatVec e, float* out) {
  const FloatVec sums[] = {a, b, c, e};
  for (int i = 0; i < 4; ++i) out[i] = hn::GetLane(sums[i]);
}
#else
template <class D>
HWY_INLINE void StoreSums(D d, hn::Vec<D> sums, float* out) {
  if constexpr (hn::MaxLanes(d) > 4) {
    const hn::Half<D> half;
    StoreSums(half, hn::Add(hn::LowerHalf(half, sums), hn::UpperHalf(half, sums)), out);
  } else {
    hn::StoreU(sums, d, out);
  }
}
// The sums of the lanes of four vectors.
HWY_INLINE void StoreSums(FloatVec a, FloatVec b, FloatVec c, FloatVec e, float* out) {
  const FloatTag d;
  const hn::Repartition<uint64_t, FloatTag> pairs;
  const FloatVec ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const FloatVec ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const auto ab_pairs = hn::BitCast(pairs, ab), ce_pairs = hn::BitCast(pairs, ce);
  const auto lower = hn::InterleaveLower(pairs, ab_pairs, ce_pairs);
  const auto upper = hn::InterleaveUpper(pairs, ab_pairs, ce_pairs);
  StoreSums(d, hn::Add(hn::BitCast(d, lower), hn::BitCast(d, upper)), out);
}
#endif

// kColumns elements of the values from `column` on, weighted for kRows queries from `query` on.
template <bool kPrefetch, int kRows, int kColumns, typename Row>
void ValueTile(const Split<Row>& s, Panels panels, int64_t group, int64_t query, int64_t column) {
  const FloatTag d;
  const int64_t row = group * s.queries + query;
  const float* weights = s.scores + row * kSplit;
  constexpr auto kRowBytes = static_cast<int64_t>(sizeof(Row));
  [[maybe_unused]] const int64_t every = ElementsOfLine<Row>(s.stride);
  FloatVec sums[kRows][kColumns];
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    const float* sofar =
        panels.begin == 0 ? nullptr : s.sums + ((row + r) * s.value_width + column) * kLanes;
    HWY_UNROLL(16)
    for (int c = 0; c < kColumns; ++c) {
      sums[r][c] = panels.begin == 0 ? hn::Zero(d) : hn::LoadU(d, sofar + c * kLanes);
    }
  }
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    const int64_t first = (group * s.value_width + column) * s.stride;
    const Row* values = s.values[panel] + first;
    [[maybe_unused]] const Row* ahead = kPrefetch ? s.values[panel + s.ahead] : nullptr;
    HWY_UNROLL(16)
    for (int v = 0; v < kVectors; ++v) {
      FloatVec w[kRows];
      HWY_UNROLL(16)
      for (int r = 0; r < kRows; ++r) {
        w[r] = hn::LoadU(d, weights + r * kSplit + panel * kPanel + v * kLanes);
      }
      HWY_UNROLL(16)
      for (int c = 0; c < kColumns; ++c) {
        const Row* from = values + c * s.stride + v * kLanes;
        if constexpr (kPrefetch) {
          if (v == 0 && (c & (every - 1)) == 0) {
            Prefetch(ahead, (first + c * s.stride) * kRowBytes);
          }
        }
        const FloatVec value = LoadFloats(d, from);
        HWY_UNROLL(16)
        for (int r = 0; r < kRows; ++r) sums[r][c] = hn::MulAdd(w[r], value, sums[r][c]);
      }
    }
  }
  if (panels.end < s.panels) {
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      float* sofar = s.sums + ((row + r) * s.value_width + column) * kLanes;
      HWY_UNROLL(16)
      for (int c = 0; c < kColumns; ++c) hn::StoreU(sums[r][c], d, sofar + c * kLanes);
    }
    return;
  }
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    float* out = s.out[row + r] + column;
    if constexpr (kColumns == 1) {
      *out = hn::GetLane(hn::SumOfLanes(d, sums[r][0]));
    } else {
      HWY_UNROLL(16)
      for (int c = 0; c < kColumns; c += 4) {
        StoreSums(sums[r][c], sums[r][c + 1], sums[r][c + 2], sums[r][c + 3], out + c);
      }
    }
  }
}

template <bool kPrefetch, int kRows, int kColumns, typename Row>
HWY_INLINE void ValueQueries(const Split<Row>& s, Panels panels, int64_t group, int64_t query,
                             int64_t column) {
  for (; query + kRows <= s.queries; query += kRows) {
    if (query == 0) {
      ValueTile<kPrefetch, kRows, kColumns>(s, panels, group, query, column);
    } else {
      ValueTile<false, kRows, kColumns>(s, panels, group, query, column);
    }
  }
  if constexpr (kRows > 1)
    ValueQueries<kPrefetch, Fewer(kRows), kColumns>(s, panels, group, query, column);
}

// All queries, kColumns elements at a time and then fewer: 4 of them at least, or one.
template <bool kPrefetch, int kRows, int kColumns, typename Row>
HWY_INLINE void ValueColumns(const Split<Row>& s, Panels panels, int64_t group, int64_t column) {
  for (; column + kColumns <= s.value_width; column += kColumns) {
    ValueQueries<kPrefetch, kRows, kColumns>(s, panels, group, 0, column);
  }
  if constexpr (kColumns > 4) {
    ValueColumns<kPrefetch, kRows, kColumns / 2>(s, panels, group, column);
  } else if constexpr (kColumns > 1) {
    ValueColumns<kPrefetch, kRows, 1>(s, panels, group, column);
  }
}

template <bool kPrefetch, typename Row>
void AttendSplit(const Split<Row>& s) {
  // Every query reads a few panels while a near cache holds them.
  constexpr int kRows = std::max(kSums / 2 / kVectors, 1);
  for (int64_t begin = 0; begin < s.panels; begin += kStreams) {
    for (int64_t group = 0; group < s.groups; ++group) {
      ScoreQueries<kPrefetch, kRows>(s, {begin, std::min(begin + kStreams, s.panels)}, group, 0);
    }
  }
  for (int64_t row = 0; row < s.groups * s.queries; ++row) {
    Exponentiate(s.scores + row * kSplit, s.visible[row % s.queries], s.panels, &s.max[row],
                 &s.sum[row]);
  }
  const int64_t streams = s.queries == 1 ? kStreams : s.panels;
  for (int64_t begin = 0; begin < s.panels; begin += streams) {
    const Panels panels{begin, std::min(begin + streams, s.panels)};
    for (int64_t group = 0; group < s.groups; ++group) {
      if (s.queries == 1) {
        // Not more elements at a time: memory is read fastest in short turns of many streams.
        ValueColumns<kPrefetch, 1, 4>(s, panels, group, 0);
      } else if (s.queries < 4) {
        ValueColumns<kPrefetch, 2, kSums / 2>(s, panels, group, 0);
      } else {
        ValueColumns<kPrefetch, kSums / 4, 4>(s, panels, group, 0);
      }
    }
  }
}

template <typename Row>
void AttendSplit(const Split<Row>& s) {
  if (s.ahead > 0) {
    AttendSplit<true>(s);
  } else {
    AttendSplit<false>(s);
  }
}

void AttendSplitFloat(const Split<float>& s) { AttendSplit(s); }
void AttendSplitBFloat16(const Split<uint16_t>& s) { AttendSplit(s); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace triptych
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace triptych {
namespace {

HWY_EXPORT(AttendSplitFloat);
HWY_EXPORT(AttendSplitBFloat16);

auto Dispatch(const float*) { return HWY_DYNAMIC_DISPATCH(AttendSplitFloat); }
auto Dispatch(const uint16_t*) { return HWY_DYNAMIC_DISPATCH(AttendSplitBFloat16); }

// Writing an element costs about as much as so many multiply-adds.
constexpr int64_t kElementWork = 32;

float RoundTo(const float*, float x) { return x; }
uint16_t RoundTo(const uint16_t*, float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (x != x) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Up to kQueries queries of one sequence. Of its queries that read a group, token by token, these
// are from `first` on, for each of the groups.
struct Piece {
  const PagedSequence* sequence;
  int64_t token;  // the sequence's first, in q and out
  int64_t group;
  int64_t groups;
  int64_t first;
  int64_t queries;      // of each group
  int64_t splits;       // as many as the last query needs
  int64_t first_split;  // the sum of the splits of all pieces before
  int64_t first_row;    // the sum of their rows times splits

  int64_t rows() const { return groups * queries; }
};

// What a split gave a piece's rows: those of its first group, then of the next.
struct Partial {
  float* max;  // [rows]
  float* sum;  // [rows]
  float* out;  // [rows, value_width]; of the first split, in their place instead
};

template <typename Row>
class Attention {
 public:
  Attention(const float* q, int64_t q_stride, const Row* cache, int64_t block_positions,
            const PagedRowLayout& layout, float scale, float* out, int64_t out_stride)
      : q_(q),
        q_stride_(q_stride),
        cache_(cache),
        block_positions_(block_positions),
        layout_(layout),
        scale_(scale * std::numbers::log2e_v<float>),
        out_(out),
        out_stride_(out_stride),
        shared_(layout.heads / layout.groups) {}

  int64_t shared() const { return shared_; }
  // How many positions a row of a piece attends.
  int64_t Length(const Piece& piece, int64_t row) const {
    return piece.sequence->start + (piece.first + row % piece.queries) / shared_ + 1;
  }

  // One split of a piece.
  void AttendOne(const Piece& piece, int64_t split, const Partial& partial) const {
    thread_local std::vector<float> q, scores, sums;
    thread_local std::vector<Row> gathered;
    q.resize(kQueries * layout_.key_width);
    scores.resize(kQueries * kSplit);
    sums.resize(kFewQueries * layout_.value_width * kPanel);
    // Earlier queries may see nothing of a later split.
    const int64_t begin = split * kSplit;
    int64_t skipped = 0;
    while (Length(piece, skipped) <= begin) ++skipped;
    const int64_t queries = piece.queries - skipped;
    int64_t visible[kQueries];
    float* out[kQueries];
    for (int64_t i = 0; i < queries; ++i) {
      visible[i] = std::min(Length(piece, skipped + i) - begin, kSplit);
    }
    for (int64_t i = 0; i < piece.groups * queries; ++i) {
      const int64_t row = i / queries * piece.queries + skipped + i % queries;
      const auto [token, head] = TokenAndHead(piece, row);
      const float* from = q_ + token * q_stride_ + head * layout_.key_width;
      float* to = &q[i * layout_.key_width];
      for (int64_t k = 0; k < layout_.key_width; ++k) to[k] = scale_ * from[k];
      out[i] = split == 0 ? Out(piece, row) : partial.out + row * layout_.value_width;
    }
    float max[kQueries], sum[kQueries];
    const int64_t panels = CeilDiv(visible[queries - 1], kPanel);
    // What several queries of a group read comes a whole phase ahead: the values while the keys are
    // read, the next keys while the values are. One query reads too much for that, and a latent's
    // values are its keys.
    const int64_t ahead = layout_.groups > 1 && piece.queries > 1 ? panels : kStreams;
    const Row* keys[3 * kPanels];
    const Row** values = keys + panels;
    Split<Row> s{.groups = piece.groups,
                 .queries = queries,
                 .q = q.data(),
                 .visible = visible,
                 .panels = panels,
                 .keys = keys,
                 .values = values,
                 .ahead = ahead,
                 .stride = block_positions_,
                 .key_width = layout_.key_width,
                 .value_width = layout_.value_width,
                 .scores = scores.data(),
                 .sums = sums.data(),
                 .max = max,
                 .sum = sum,
                 .out = out};
    const int64_t key = piece.group * layout_.key_width;
    const int64_t value = layout_.value_offset + piece.group * layout_.value_width;
    if (block_positions_ % kPanel == 0) {
      for (int64_t i = 0; i < s.panels; ++i) {
        const Row* panel = At(piece, begin + i * kPanel);
        keys[i] = panel + key * s.stride;
        values[i] = panel + value * s.stride;
      }
      for (int64_t i = 0; i < ahead; ++i) {
        const int64_t next = begin + kSplit + i * kPanel;
        values[panels + i] =
            next < Length(piece, piece.rows() - 1) ? At(piece, next) + key * s.stride : keys[0];
      }
    } else {  // panels straddle blocks
      s.stride = kPanel;
      s.ahead = 0;
      const int64_t key_elements = piece.groups * layout_.key_width;
      const int64_t elements = key_elements + piece.groups * layout_.value_width;
      gathered.resize(s.panels * elements * kPanel);
      std::fill(gathered.end() - elements * kPanel, gathered.end(),
                Row{0});  // the last panel's end
      for (int64_t i = 0; i < s.panels; ++i) {
        keys[i] = &gathered[i * elements * kPanel];
        values[i] = keys[i] + key_elements * kPanel;
      }
      for (int64_t p = 0; p < visible[queries - 1]; ++p) {
        const Row* column = At(piece, begin + p);
        Row* to = &gathered[p / kPanel * elements * kPanel + p % kPanel];
        for (int64_t e = 0; e < elements; ++e, to += kPanel) {
          *to = column[(e < key_elements ? key + e : value + e - key_elements) * block_positions_];
        }
      }
    }
    Dispatch(cache_)(s);
    for (int64_t i = 0; i < piece.groups * queries; ++i) {
      const int64_t row = i / queries * piece.queries + skipped + i % queries;
      partial.max[row] = max[i];
      partial.sum[row] = sum[i];
    }
  }

  // Adds to a row what a later split gave it. In one place only, so that the compiler rounds alike
  // wherever splits are merged.
  [[gnu::noinline]] void Merge(const Piece& piece, int64_t row, const Partial& later,
                               const Partial& sofar) const {
    const float max = std::max(sofar.max[row], later.max[row]);
    const float keep = std::exp2(sofar.max[row] - max), add = std::exp2(later.max[row] - max);
    const float* from = later.out + row * layout_.value_width;
    float* to = Out(piece, row);
    for (int64_t c = 0; c < layout_.value_width; ++c) to[c] = to[c] * keep + from[c] * add;
    sofar.sum[row] = sofar.sum[row] * keep + later.sum[row] * add;
    sofar.max[row] = max;
  }

  void Normalize(const Piece& piece, int64_t row, const Partial& sofar) const {
    const float inverse = 1 / sofar.sum[row];
    float* out = Out(piece, row);
    for (int64_t c = 0; c < layout_.value_width; ++c) out[c] *= inverse;
  }

 private:
  struct TokenHead {
    int64_t token;
    int64_t head;
  };
  // Head h = j * G + group.
  TokenHead TokenAndHead(const Piece& piece, int64_t row) const {
    const int64_t query = piece.first + row % piece.queries;
    const int64_t group = piece.group + row / piece.queries;
    return {piece.token + query / shared_, query % shared_ * layout_.groups + group};
  }
  float* Out(const Piece& piece, int64_t row) const {
    const auto [token, head] = TokenAndHead(piece, row);
    return out_ + token * out_stride_ + head * layout_.value_width;
  }
  // The first element of a position's row.
  const Row* At(const Piece& piece, int64_t position) const {
    return cache_ +
           piece.sequence->blocks[position / block_positions_] * block_positions_ *
               layout_.row_width +
           position % block_positions_;
  }

  const float* q_;
  int64_t q_stride_;
  const Row* cache_;
  int64_t block_positions_;
  const PagedRowLayout& layout_;
  float scale_;  // of scores, whose base is 2
  float* out_;
  int64_t out_stride_;
  int64_t shared_;  // heads that read one group
};

// Results of `rows` rows. Grows, and never shrinks: a step as large as one before allocates
// nothing.
Partial Reserve(std::vector<float>& memory, int64_t rows, int64_t value_width) {
  const auto size = static_cast<size_t>(rows * (value_width + 2));
  if (memory.size() < size) memory.resize(size);
  return {memory.data(), memory.data() + rows, memory.data() + rows * 2};
}

// Those from a row on.
Partial From(const Partial& all, int64_t row, int64_t value_width) {
  return {all.max + row, all.sum + row, all.out + row * value_width};
}

// The splits of a piece in order, each merged at once.
template <typename Row>
void AttendWhole(const Attention<Row>& attention, const Piece& piece, int64_t value_width) {
  thread_local std::vector<float> memory;
  const Partial sofar = Reserve(memory, 2 * kQueries, value_width);
  const Partial later = From(sofar, kQueries, value_width);
  for (int64_t split = 0; split < piece.splits; ++split) {
    attention.AttendOne(piece, split, split == 0 ? sofar : later);
    if (split == 0) continue;
    for (int64_t row = 0; row < piece.rows(); ++row) {
      if (attention.Length(piece, row) > split * kSplit) attention.Merge(piece, row, later, sofar);
    }
  }
  for (int64_t row = 0; row < piece.rows(); ++row) attention.Normalize(piece, row, sofar);
}

}  // namespace

template <typename Row>
void WritePagedRows(const float* rows, int64_t rows_stride, int64_t row_width,
                    int64_t block_positions, const std::vector<PagedSequence>& sequences,
                    Row* cache, ThreadPool& pool) {
  int64_t tokens = 0;
  for (const PagedSequence& sequence : sequences) tokens += sequence.count;
  // A task writes some elements of every row.
  const int64_t tasks = std::min(row_width, pool.TasksWorth(tokens * row_width * kElementWork));
  pool.Run(tasks, [&](int64_t task) {
    const int64_t begin = row_width * task / tasks, end = row_width * (task + 1) / tasks;
    const float* from = rows;
    for (const PagedSequence& sequence : sequences) {
      const int64_t last = sequence.start + sequence.count - 1;
      for (int64_t p = sequence.start; p <= last;) {
        // The rest of a panel, or of what is new of it. What its later positions will overwrite is
        // read until then, with weight zero.
        const int64_t column = p % block_positions;
        const int64_t panel_end = std::min(column / kPanel * kPanel + kPanel, block_positions);
        const int64_t count = std::min(panel_end - column, last + 1 - p);
        const int64_t written = column % kPanel == 0 ? panel_end - column : count;
        Row* to = cache +
                  (sequence.blocks[p / block_positions] * row_width + begin) * block_positions +
                  column;
        for (int64_t c = begin; c < end; ++c, to += block_positions) {
          for (int64_t i = 0; i < count; ++i) to[i] = RoundTo(to, from[i * rows_stride + c]);
          for (int64_t i = count; i < written; ++i) to[i] = Row{0};
        }
        from += count * rows_stride;
        p += count;
      }
    }
  });
}

template <typename Row>
void ReadPagedRows(const Row* cache, int64_t row_width, int64_t block_positions,
                   const int32_t* blocks, int64_t length, float* rows) {
  for (int64_t first = 0; first < length; first += block_positions) {
    const Row* from = cache + blocks[first / block_positions] * block_positions * row_width;
    const int64_t count = std::min(block_positions, length - first);
    for (int64_t c = 0; c < row_width; ++c, from += block_positions) {
      for (int64_t i = 0; i < count; ++i)
        rows[(first + i) * row_width + c] = HWY_NAMESPACE::LoadFloat(from + i);
    }
  }
}

template <typename Row>
void PagedAttention(const float* q, int64_t q_stride, const Row* cache, int64_t block_positions,
                    const PagedRowLayout& layout, float scale,
                    const std::vector<PagedSequence>& sequences, float* out, int64_t out_stride,
                    ThreadPool& pool) {
  const Attention<Row> attention(q, q_stride, cache, block_positions, layout, scale, out,
                                 out_stride);
  const int64_t shared = attention.shared();
  int64_t work = 0, group_splits = 0;  // multiply-adds; splits, for one group
  for (const PagedSequence& sequence : sequences) {
    const int64_t end = sequence.start + sequence.count;
    work += (end * (end + 1) - sequence.start * (sequence.start + 1)) / 2 * layout.heads *
            (layout.key_width + layout.value_width);
    group_splits += CeilDiv(end, kSplit) * CeilDiv(sequence.count * shared, kQueries);
  }
  const int64_t wanted = pool.TasksWorth(work);
  // Groups that are read together: as many as leave enough to share.
  const int64_t together = std::max<int64_t>(layout.groups * group_splits / wanted, 1);

  thread_local std::vector<Piece> all_pieces;
  all_pieces.clear();
  int64_t token = 0, splits = 0, rows = 0;
  for (const PagedSequence& sequence : sequences) {
    const int64_t queries = sequence.count * shared;
    const int64_t groups = std::clamp<int64_t>(kFewQueries / queries, 1, together);
    for (int64_t group = 0; group < layout.groups; group += groups) {
      for (int64_t first = 0; first < queries; first += kQueries) {
        Piece piece{.sequence = &sequence,
                    .token = token,
                    .group = group,
                    .groups = std::min(groups, layout.groups - group),
                    .first = first,
                    .queries = std::min(kQueries, queries - first),
                    .splits = 0,
                    .first_split = splits,
                    .first_row = rows};
        piece.splits = CeilDiv(attention.Length(piece, piece.queries - 1), kSplit);
        splits += piece.splits;
        rows += piece.rows() * piece.splits;
        all_pieces.push_back(piece);
      }
    }
    token += sequence.count;
  }
  const std::vector<Piece>& pieces = all_pieces;  // this thread's, for all of the pool's
  const auto count = static_cast<int64_t>(pieces.size());
  // The piece that split i of all belongs to.
  const auto find = [&](int64_t i) {
    return std::partition_point(pieces.begin(), pieces.end(), [&](const Piece& piece) {
      return piece.first_split + piece.splits <= i;
    });
  };
  if (wanted == 1 || count >= 4 * pool.threads()) {
    const int64_t tasks = std::min(wanted, count);
    pool.Run(tasks, [&](int64_t task) {
      // The pieces that begin in this part of all splits.
      auto piece = find(splits * task / tasks);
      if (piece->first_split < splits * task / tasks) ++piece;
      for (; piece != pieces.end() && piece->first_split < splits * (task + 1) / tasks; ++piece) {
        AttendWhole(attention, *piece, layout.value_width);
      }
    });
    return;
  }

  // So few that a piece is shared between threads.
  thread_local std::vector<float> memory;
  const Partial partials = Reserve(memory, rows, layout.value_width);
  const auto partial = [&](const Piece& piece, int64_t split) {
    return From(partials, piece.first_row + split * piece.rows(), layout.value_width);
  };
  const int64_t tasks = std::min(wanted, splits);
  pool.Run(tasks, [&](int64_t task) {
    for (int64_t i = splits * task / tasks; i < splits * (task + 1) / tasks; ++i) {
      const auto piece = find(i);
      const int64_t split = i - piece->first_split;
      attention.AttendOne(*piece, split, partial(*piece, split));
    }
  });
  const int64_t merges = count * kQueries;
  const int64_t merge_tasks =
      std::min(merges, pool.TasksWorth(splits * kQueries * layout.value_width));
  pool.Run(merge_tasks, [&](int64_t task) {
    for (int64_t m = merges * task / merge_tasks; m < merges * (task + 1) / merge_tasks; ++m) {
      const Piece& piece = pieces[m / kQueries];
      const int64_t row = m % kQueries;
      if (row >= piece.rows()) continue;
      const Partial sofar = partial(piece, 0);
      for (int64_t split = 1; split < CeilDiv(attention.Length(piece, row), kSplit); ++split) {
        attention.Merge(piece, row, partial(piece, split), sofar);
      }
      attention.Normalize(piece, row, sofar);
    }
  });
}

template void WritePagedRows(const float*, int64_t, int64_t, int64_t,
                             const std::vector<PagedSequence>&, float*, ThreadPool&);
template void WritePagedRows(const float*, int64_t, int64_t, int64_t,
                             const std::vector<PagedSequence>&, uint16_t*, ThreadPool&);
template void ReadPagedRows(const float*, int64_t, int64_t, const int32_t*, int64_t, float*);
template void ReadPagedRows(const uint16_t*, int64_t, int64_t, const int32_t*, int64_t, float*);
template void PagedAttention(const float*, int64_t, const float*, int64_t, const PagedRowLayout&,
                             float, const std::vector<PagedSequence>&, float*, int64_t,
                             ThreadPool&);
template void PagedAttention(const float*, int64_t, const uint16_t*, int64_t, const PagedRowLayout&,
                             float, const std::vector<PagedSequence>&, float*, int64_t,
                             ThreadPool&);

}  // namespace triptych
#endif  // HWY_ONCE
