#include "engine/kernels/attention_tiles.h"

#include <algorithm>
#include <bit>
#include <cmath>

// Compiled once for each instruction set; the best one is chosen at run time.
#include "engine/kernels/instruction_sets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/attention_tiles.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/kernels/elements.h"
#include "engine/kernels/load-inl.h"
#include "engine/kernels/power-inl.h"
#include "engine/kernels/prefetch.h"
#include "engine/kernels/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace triptych {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::CappedTag<float, kPanelPositions>;
using FloatVec = hn::Vec<FloatTag>;

constexpr int64_t kLanes = hn::MaxLanes(FloatTag());
constexpr int kVectors = static_cast<int>(kPanelPositions / kLanes);  // of a panel
// Vectors of sums that fit into registers, next to what is multiplied; and how many queries are
// scored, and weigh values, together.
constexpr bool kFewRegisters = HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3;
constexpr int kSums = kFewRegisters ? 12 : 16;
constexpr int kScoreRows = std::max(8 / kVectors, 1);
constexpr int kValueRows = !kFewRegisters ? 4 : HWY_NATIVE_FMA ? 3 : 2;

// One of this many consecutive elements begins a line of the cache. It is a power of two: a stride
// that is none is longer than a line.
template <typename Element>
HWY_INLINE int64_t ElementsOfLine(int64_t stride) {
  return std::max<int64_t>(kLineBytes / (stride * static_cast<int64_t>(sizeof(Element))), 1);
}

// Panels begin to end - 1 of a split.
struct Panels {
  int64_t begin;
  int64_t end;
};

// Computes the scores of kRows queries, from `query` on, at kColumns panels, from `panel` on.
template <bool kPrefetch, int kRows, int kColumns, typename Element>
void ScoreTile(const AttentionSplit<Element>& s, int64_t group, int64_t query, int64_t panel) {
  const FloatTag d;
  const int64_t row = group * s.queries + query;
  const float* q = s.q + row * s.key_width;
  constexpr auto kElementBytes = static_cast<int64_t>(sizeof(Element));
  const Element* keys[kColumns];
  [[maybe_unused]] const Element* ahead[kColumns];
  [[maybe_unused]] const int64_t every = ElementsOfLine<Element>(s.stride);
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
  for (int64_t k = 0; k < s.key_width;) {
    int64_t end = s.key_width;
    [[maybe_unused]] FloatVec scales[kColumns][kVectors];
    if constexpr (kHasScale<Element>) {
      const int64_t element = s.key_offset + group * s.key_width + k;
      end = std::min(end, k + kQuantizationGroup - element % kQuantizationGroup);
      HWY_UNROLL(16)
      for (int c = 0; c < kColumns; ++c) {
        const uint16_t* const from = s.scales[panel + c] + element / kQuantizationGroup * s.stride;
        HWY_UNROLL(16)
        for (int v = 0; v < kVectors; ++v) scales[c][v] = LoadFloats(d, from + v * kLanes);
      }
    }
    for (; k < end; ++k) {
      if constexpr (kPrefetch) {
        if ((k & (every - 1)) == 0) {
          HWY_UNROLL(16)
          for (int c = 0; c < kColumns; ++c) {
            Prefetch(ahead[c], (group * s.key_width + k) * s.stride * kElementBytes);
          }
        }
      }
      const auto key = [&](int c, int v) {
        const FloatVec x = LoadFloats(d, keys[c] + k * s.stride + v * kLanes);
        if constexpr (kHasScale<Element>) return hn::Mul(x, scales[c][v]);
        return x;
      };
      ForEachProduct<kRows, kColumns * kVectors>(
          [&](int r) { return hn::Set(d, q[r * s.key_width + k]); },
          [&](int i) { return key(i / kVectors, i % kVectors); },
          [&](int r, int i, FloatVec x, FloatVec y) {
            FloatVec& sum = sums[r][i / kVectors][i % kVectors];
            sum = hn::MulAdd(x, y, sum);
          });
    }
  }
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    float* scores = s.scores + (row + r) * kSplitPositions + panel * kPanelPositions;
    HWY_UNROLL(16)
    for (int c = 0; c < kColumns; ++c) {
      HWY_UNROLL(16)
      for (int v = 0; v < kVectors; ++v) {
        hn::StoreU(sums[r][c][v], d, scores + c * kPanelPositions + v * kLanes);
      }
    }
  }
}

// How many queries the next smaller tile has.
constexpr int Fewer(int rows) { return rows > 4 ? rows / 2 : rows - 1; }

// Computes scores at all these panels, kColumns at a time and then fewer.
template <bool kPrefetch, int kRows, int kColumns, typename Element>
HWY_INLINE void ScorePanels(const AttentionSplit<Element>& s, Panels panels, int64_t group,
                            int64_t query) {
  for (; panels.begin + kColumns <= panels.end; panels.begin += kColumns) {
    ScoreTile<kPrefetch, kRows, kColumns>(s, group, query, panels.begin);
  }
  if constexpr (kColumns > 1) ScorePanels<kPrefetch, kRows, kColumns / 2>(s, panels, group, query);
}

// Computes the scores of all queries from `query` on, kRows at a time and then fewer.
template <bool kPrefetch, int kRows, typename Element>
HWY_INLINE void ScoreQueries(const AttentionSplit<Element>& s, Panels panels, int64_t group,
                             int64_t query) {
  // Scales take as much as the sums of one query.
  constexpr int kAlike = kHasScale<Element> && kFewRegisters ? kRows + 1 : kRows;
  constexpr unsigned kFit = std::clamp<int>(kSums / (kAlike * kVectors), 1, kStreams);
  constexpr int kColumns = std::bit_floor(kFit);
  for (; query + kRows <= s.queries; query += kRows) {
    if (query == 0) {  // later queries find what the first ones fetched
      ScorePanels<kPrefetch, kRows, kColumns>(s, panels, group, query);
    } else {
      ScorePanels<false, kRows, kColumns>(s, panels, group, query);
    }
  }
  if constexpr (kRows > 1) ScoreQueries<kPrefetch, Fewer(kRows)>(s, panels, group, query);
}

// Turns the first `visible` scores into 2^(score - max), and the others into zero.
//   scores: [panels * kPanelPositions]
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
    FloatVec power = PowerOfTwo(d, hn::Sub(hn::LoadU(d, scores + i), largest));
    if (i + kLanes > visible) power = hn::IfThenElseZero(hn::FirstN(d, visible - i), power);
    total = hn::Add(total, power);
    hn::StoreU(power, d, scores + i);
  }
  for (; i < panels * kPanelPositions; i += kLanes) hn::StoreU(hn::Zero(d), d, scores + i);
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
// Stores the sums of the lanes of each of four vectors.
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

// Adds up kColumns elements of the values, from `column` on, weighted for kRows queries, from
// `query` on.
template <bool kPrefetch, int kRows, int kColumns, typename Element>
void ValueTile(const AttentionSplit<Element>& s, Panels panels, int64_t group, int64_t query,
               int64_t column) {
  const FloatTag d;
  const int64_t row = group * s.queries + query;
  const float* weights =
      kHasScale<Element> ? s.scaled + query * kSplitPositions : s.scores + row * kSplitPositions;
  constexpr auto kElementBytes = static_cast<int64_t>(sizeof(Element));
  [[maybe_unused]] const int64_t every = ElementsOfLine<Element>(s.stride);
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
    const Element* values = s.values[panel] + first;
    [[maybe_unused]] const Element* ahead = kPrefetch ? s.values[panel + s.ahead] : nullptr;
    HWY_UNROLL(16)
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kPrefetch) {
        if (v == 0) {
          HWY_UNROLL(16)
          for (int c = 0; c < kColumns; ++c) {
            if ((c & (every - 1)) == 0) Prefetch(ahead, (first + c * s.stride) * kElementBytes);
          }
        }
      }
      ForEachProduct<kRows, kColumns>(
          [&](int r) {
            return hn::LoadU(d,
                             weights + r * kSplitPositions + panel * kPanelPositions + v * kLanes);
          },
          [&](int c) { return LoadFloats(d, values + c * s.stride + v * kLanes); },
          [&](int r, int c, FloatVec weight, FloatVec value) {
            sums[r][c] = hn::MulAdd(weight, value, sums[r][c]);
          });
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

// Adds up kColumns elements of the values for all queries from `query` on, kRows of them at a time
// and then fewer.
template <bool kPrefetch, int kRows, int kColumns, typename Element>
HWY_INLINE void ValueQueries(const AttentionSplit<Element>& s, Panels panels, int64_t group,
                             int64_t query, int64_t column) {
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

// Adds up the values' elements `column` to end - 1 for all queries, kColumns elements at a time and
// then fewer: at least 4, or one.
template <bool kPrefetch, int kRows, int kColumns, typename Element>
HWY_INLINE void ValueColumns(const AttentionSplit<Element>& s, Panels panels, int64_t group,
                             int64_t column, int64_t end) {
  for (; column + kColumns <= end; column += kColumns) {
    ValueQueries<kPrefetch, kRows, kColumns>(s, panels, group, 0, column);
  }
  if constexpr (kColumns > 4) {
    ValueColumns<kPrefetch, kRows, kColumns / 2>(s, panels, group, column, end);
  } else if constexpr (kColumns > 1) {
    ValueColumns<kPrefetch, kRows, 1>(s, panels, group, column, end);
  }
}

// Multiplies the weights of a group's queries by the scales of the values' elements that share one
// with element `column`.
void ScaleWeights(const AttentionSplit<int8_t>& s, Panels panels, int64_t group, int64_t column) {
  const FloatTag d;
  const int64_t element = s.value_offset + group * s.value_width + column;
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    const uint16_t* const scales = s.scales[panel] + element / kQuantizationGroup * s.stride;
    for (int v = 0; v < kVectors; ++v) {
      const FloatVec scale = LoadFloats(d, scales + v * kLanes);
      const int64_t position = panel * kPanelPositions + v * kLanes;
      for (int64_t r = 0; r < s.queries; ++r) {
        const FloatVec weight =
            hn::LoadU(d, s.scores + (group * s.queries + r) * kSplitPositions + position);
        hn::StoreU(hn::Mul(weight, scale), d, s.scaled + r * kSplitPositions + position);
      }
    }
  }
}

// Adds up all elements of a group's values for all queries.
template <bool kPrefetch, int kRows, int kColumns, typename Element>
HWY_INLINE void ValueGroup(const AttentionSplit<Element>& s, Panels panels, int64_t group) {
  if constexpr (kHasScale<Element>) {
    const int64_t first = s.value_offset + group * s.value_width;
    for (int64_t column = 0; column < s.value_width;) {
      const int64_t end = std::min(
          s.value_width, column + kQuantizationGroup - (first + column) % kQuantizationGroup);
      ScaleWeights(s, panels, group, column);
      ValueColumns<kPrefetch, kRows, kColumns>(s, panels, group, column, end);
      column = end;
    }
  } else {
    ValueColumns<kPrefetch, kRows, kColumns>(s, panels, group, 0, s.value_width);
  }
}

template <bool kPrefetch, typename Element>
void AttendTiles(const AttentionSplit<Element>& s) {
  // Every query reads a few panels while a near cache holds them.
  for (int64_t begin = 0; begin < s.panels; begin += kStreams) {
    for (int64_t group = 0; group < s.groups; ++group) {
      ScoreQueries<kPrefetch, kScoreRows>(s, {begin, std::min(begin + kStreams, s.panels)}, group,
                                          0);
    }
  }
  for (int64_t row = 0; row < s.groups * s.queries; ++row) {
    Exponentiate(s.scores + row * kSplitPositions, s.visible[row % s.queries], s.panels,
                 &s.max[row], &s.sum[row]);
  }
  const int64_t streams = s.queries == 1 ? kStreams : s.panels;
  for (int64_t begin = 0; begin < s.panels; begin += streams) {
    const Panels panels{begin, std::min(begin + streams, s.panels)};
    for (int64_t group = 0; group < s.groups; ++group) {
      if (s.queries == 1) {
        // Few elements at a time: memory is read fastest in short turns of many streams.
        ValueGroup<kPrefetch, 1, 4>(s, panels, group);
      } else if (s.queries < kValueRows) {
        ValueGroup<kPrefetch, 2, std::bit_floor(kSums / 2u)>(s, panels, group);
      } else {
        ValueGroup<kPrefetch, kValueRows, 4>(s, panels, group);
      }
    }
  }
}

template <typename Element>
void AttendTiles(const AttentionSplit<Element>& s) {
  if (s.ahead > 0) {
    AttendTiles<true>(s);
  } else {
    AttendTiles<false>(s);
  }
}

void AttendSplitFloat(const AttentionSplit<float>& s) { AttendTiles(s); }
void AttendSplitBFloat16(const AttentionSplit<uint16_t>& s) { AttendTiles(s); }
void AttendSplitInt8(const AttentionSplit<int8_t>& s) { AttendTiles(s); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace triptych
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace triptych {
namespace {

HWY_EXPORT(AttendSplitFloat);
HWY_EXPORT(AttendSplitBFloat16);
HWY_EXPORT(AttendSplitInt8);

}  // namespace

void AttendSplit(const AttentionSplit<float>& split) {
  HWY_DYNAMIC_DISPATCH(AttendSplitFloat)(split);
}
void AttendSplit(const AttentionSplit<uint16_t>& split) {
  HWY_DYNAMIC_DISPATCH(AttendSplitBFloat16)(split);
}
void AttendSplit(const AttentionSplit<int8_t>& split) {
  HWY_DYNAMIC_DISPATCH(AttendSplitInt8)(split);
}

}  // namespace triptych
#endif  // HWY_ONCE
