#include "engine/kernels/attention_tiles.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <type_traits>

// Compiled once for each instruction set; the best one is chosen at run time.
#include "engine/kernels/instruction_sets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/attention_tiles.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/base/ceil_div.h"
#include "engine/kernels/elements.h"
#include "engine/kernels/load-inl.h"
#include "engine/kernels/power-inl.h"
#include "engine/kernels/prefetch.h"
#include "engine/kernels/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace triptych::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::CappedTag<float, kPanelPositions>;
using FloatVec = hn::Vec<FloatTag>;

constexpr int64_t kLanes = hn::MaxLanes(FloatTag());
constexpr int kVectors = static_cast<int>(kPanelPositions / kLanes);  // of a panel
// Vectors that fit in registers besides the operands: accumulators, and weights whose accumulators
// are in memory.
constexpr bool kFewRegisters = HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3;
constexpr int kSums = !kFewRegisters ? 16 : HWY_NATIVE_FMA ? 12 : 8;
constexpr int kWeights = kFewRegisters ? 8 : 16;
// With at most this many queries per group, reading takes as long as computing. Values are then
// read panel by panel too, with their accumulators in memory.
constexpr int64_t kFewQueries = 8;
// Most queries of a tile: kFewRows if there are few queries, which leaves registers for more
// panels; otherwise kScoreRows for scores, and kElementRows for weighting kElements elements of the
// values.
constexpr int kFewRows = kFewRegisters ? 2 : 4;
constexpr int kScoreRows = std::clamp(kSums / kVectors, 1, 8);
constexpr int kElementRows = !kFewRegisters ? 4 : HWY_NATIVE_FMA ? 3 : 2;
constexpr int kElements = 4;

// Whether elements are read as pairs of bfloat16: the even ones of 2 * kLanes positions form one
// vector, the odd ones the next. Scores are stored in that order.
template <typename Element>
constexpr bool kPairs = kVectors > 1 && std::is_same_v<Element, uint16_t>;

// Loads vector v of the kVectors that hold one element of a panel's positions.
template <typename Element>
HWY_INLINE FloatVec LoadPanel(const Element* x, int v) {
  const FloatTag d;
  if constexpr (kPairs<Element>) {
    const hn::RebindToUnsigned<FloatTag> bits;
    const auto pairs = hn::LoadU(bits, reinterpret_cast<const uint32_t*>(x + v / 2 * (2 * kLanes)));
    return hn::BitCast(
        d, v % 2 == 0 ? hn::ShiftLeft<16>(pairs) : hn::And(pairs, hn::Set(bits, 0xffff0000u)));
  } else {
    return LoadFloats(d, x + v * kLanes);
  }
}

// An int4 is loaded as the highest bits of a 32-bit integer, and therefore as 2^28 times itself.
HWY_INLINE FloatVec LoadPanel(const Int4Pair* x, int v) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> bits;
  // Even positions are in the first half of a panel, odd ones in the second. Position p is the
  // integer p / 2 of its half.
#if HWY_TARGET == HWY_SCALAR
  uint32_t halves[2];
  std::memcpy(halves, x, sizeof(halves));
  const auto shifted = hn::Set(bits, halves[v % 2] << (28 - v / 2 * 4));
#else
  uint64_t word;
  std::memcpy(&word, x, sizeof(word));
  const auto both = hn::BitCast(bits, hn::Set(hn::Repartition<uint64_t, FloatTag>(), word));
  const auto position = hn::Iota(bits, static_cast<uint32_t>(v * kLanes));
  const auto shift = hn::Sub(hn::Set(bits, 28), hn::ShiftLeft<2>(hn::ShiftRight<1>(position)));
  const auto shifted = hn::Shl(both, shift);
#endif
  const auto integers = hn::And(shifted, hn::Set(bits, 0xf0000000u));
  return hn::ConvertTo(d, hn::BitCast(hn::RebindToSigned<FloatTag>(), integers));
}

// Loads the scales of vector v of the panels from `panel` on, for numbers as LoadPanel loads them.
// `element` is an index in whole rows.
template <typename Element>
HWY_INLINE FloatVec LoadScale(const AttentionSplit<Element>& s, int64_t panel, int v,
                              int64_t element) {
  const FloatTag d;
  const FloatVec scale =
      LoadFloats(d, s.scales[panel + v / kVectors] + element / kQuantizationGroup * s.stride +
                        v % kVectors * kLanes);
  if constexpr (std::is_same_v<Element, Int4Pair>) return hn::Mul(scale, hn::Set(d, 0x1p-28f));
  return scale;
}

// End of the elements that share a scale with element `begin` of a part of `width` elements, which
// starts at element `before` of a row. Without scales, all share one.
template <typename Element>
HWY_INLINE int64_t EndOfScale(int64_t before, int64_t begin, int64_t width) {
  if constexpr (!kHasScale<Element>) return width;
  return std::min(width, begin + kQuantizationGroup - (before + begin) % kQuantizationGroup);
}

// Calls compute<kSome>(query) for tiles of kRows queries, then for tiles of kRows - 1. REQUIRES:
// queries >= CeilDiv(queries, kRows) * (kRows - 1).
template <int kRows, class Compute>
HWY_INLINE void ForEachTile(int64_t queries, const Compute& compute) {
  const int64_t wide = queries - CeilDiv(queries, int64_t{kRows}) * (kRows - 1);
  int64_t query = 0;
  for (; query < wide * kRows; query += kRows) compute.template operator()<kRows>(query);
  if constexpr (kRows > 1) {
    for (; query < queries; query += kRows - 1) compute.template operator()<kRows - 1>(query);
  }
}

// The keys or the values of a split.
template <typename Element>
struct Part {
  const Element* const* panels;  // as AttentionSplit has them
  int64_t before;                // elements of a row before these
  int64_t width;                 // elements of a group
};

// The input of a tile of queries: kPanels panels of one group, from `panel` on.
template <typename Element, int kPanels>
struct Tile {
  int64_t panel;
  int64_t row;     // of the first query: index in [groups, queries]
  int64_t before;  // elements of whole rows before these
  int64_t width;
  const Element* elements[kPanels];  // [width, stride] numbers
  // To prefetch while the tile is computed: in each panel `step` bytes per element that is read.
  const std::byte* ahead[kPanels];
  int64_t step;

  HWY_INLINE void Fetch(int64_t element) const {
    HWY_UNROLL(16)
    for (int p = 0; p < kPanels; ++p) Prefetch(ahead[p], element * step);
  }
};

// Calls Work::Compute for tiles of the panels from `panel` on, kPanels at a time and then fewer.
// Goes group by group, through all queries of a group in tiles of kRows or kRows - 1, so that
// panels are read from end to end. Prefetches scales, which are stored apart, and, if tiles have
// several queries, elements. A single query reads elements so fast that the hardware prefetcher
// does better.
template <class Work, int kRows, int kPanels, typename Element>
HWY_INLINE void ReadPanels(const AttentionSplit<Element>& s, const Part<Element>& part,
                           int64_t panel) {
  constexpr int64_t kAhead = 2048;  // prefetch distance in a panel, in bytes
  constexpr auto kElementBytes = static_cast<int64_t>(sizeof(Element));
  constexpr bool kFetch = kRows > 1;
  const int64_t width = part.width;
  const int64_t size = width * s.stride / kNumbers<Element>;  // elements of a panel's group
  const int64_t groups_ahead = std::min(CeilDiv(kAhead, size * kElementBytes), s.groups);
  // Bytes that a query prefetches per element that it reads.
  const int64_t element_bytes = s.stride * kElementBytes / kNumbers<Element>;
  const float fetched = static_cast<float>(element_bytes) / static_cast<float>(s.queries);
  for (; panel + kPanels <= s.panels; panel += kPanels) {
    const Element* const* const panels = part.panels + panel;
    for (int64_t group = 0; group < s.groups; ++group) {
      // The group to prefetch, of these panels or of the next ones. After the last panel the keys'
      // pointers continue with the values, and the values' and scales' with the next split.
      const bool wraps = group + groups_ahead >= s.groups;
      const int64_t next = group + groups_ahead - (wraps ? s.groups : 0);
      const int64_t skip = wraps ? kPanels : 0;
      if constexpr (kHasScale<Element>) {
        const int64_t first = part.before + next * width;
        for (int64_t i = first / kQuantizationGroup; i <= (first + width - 1) / kQuantizationGroup;
             ++i) {
          for (int p = 0; p < kPanels; ++p) Prefetch(s.scales[panel + skip + p] + i * s.stride, 0);
        }
      }
      ForEachTile<kRows>(s.queries, [&]<int kSome>(int64_t query) {
        Tile<Element, kPanels> tile;
        tile.panel = panel;
        tile.row = group * s.queries + query;
        tile.before = part.before + group * width;
        tile.width = width;
        HWY_UNROLL(16)
        for (int p = 0; p < kPanels; ++p) {
          tile.elements[p] = panels[p] + group * size;
          tile.ahead[p] = reinterpret_cast<const std::byte*>(panels[skip + p] + next * size) +
                          static_cast<int64_t>(fetched * static_cast<float>(query * width));
        }
        tile.step = static_cast<int64_t>(std::ceil(fetched * kSome));
        Work::template Compute<kFetch, kSome>(s, tile);
      });
    }
  }
  if constexpr (kPanels > 1) ReadPanels<Work, kRows, kPanels / 2>(s, part, panel);
}

// The same for all panels, in the fewest tiles of at most kMost and at least kLeast queries. A tile
// has as many panels as fit in registers.
template <class Work, int kLeast, int kMost, int kRows = kMost, typename Element>
HWY_INLINE void ComputeTiles(const AttentionSplit<Element>& s, const Part<Element>& part) {
  if constexpr (kRows > kLeast) {
    if (CeilDiv(s.queries, CeilDiv(s.queries, int64_t{kMost})) < kRows) {
      return ComputeTiles<Work, kLeast, kMost, kRows - 1>(s, part);
    }
  }
  constexpr int kPanels = std::clamp<int>(Work::kVectorsHeld / (kRows * kVectors), 1, kStreams);
  ReadPanels<Work, kRows, static_cast<int>(std::bit_floor(unsigned{kPanels}))>(s, part, 0);
}

// Computes the scores of a tile.
struct Score {
  static constexpr int kVectorsHeld = kSums;

  template <bool kFetch, int kRows, int kPanels, typename Element>
  static HWY_INLINE void Compute(const AttentionSplit<Element>& s,
                                 const Tile<Element, kPanels>& tile) {
    const FloatTag d;
    const int64_t width = tile.width, stride = s.stride / kNumbers<Element>;
    const float* q = s.q + tile.row * width;
    float* scores = s.scores + tile.row * kSplitPositions + tile.panel * kPanelPositions;
    constexpr int kColumns = kPanels * kVectors;
    for (int64_t begin = 0, end; begin < width; begin = end) {
      end = EndOfScale<Element>(tile.before, begin, width);
      FloatVec sums[kRows][kColumns];
      HWY_UNROLL(16)
      for (int r = 0; r < kRows; ++r) {
        HWY_UNROLL(16)
        for (int c = 0; c < kColumns; ++c) sums[r][c] = hn::Zero(d);
      }
      for (int64_t k = begin; k < end; ++k) {
        if constexpr (kFetch) tile.Fetch(k);
        ForEachProduct<kRows, kColumns>([&](int r) { return hn::Set(d, q[r * width + k]); },
                                        [&](int c) {
                                          return LoadPanel(tile.elements[c / kVectors] + k * stride,
                                                           c % kVectors);
                                        },
                                        [&](int r, int c, FloatVec x, FloatVec y) {
                                          sums[r][c] = hn::MulAdd(x, y, sums[r][c]);
                                        });
      }
      HWY_UNROLL(16)
      for (int c = 0; c < kColumns; ++c) {
        [[maybe_unused]] FloatVec scale;
        if constexpr (kHasScale<Element>) scale = LoadScale(s, tile.panel, c, tile.before + begin);
        HWY_UNROLL(16)
        for (int r = 0; r < kRows; ++r) {
          float* const to = scores + r * kSplitPositions + c * kLanes;
          if constexpr (kHasScale<Element>) {
            sums[r][c] = begin == 0 ? hn::Mul(sums[r][c], scale)
                                    : hn::MulAdd(sums[r][c], scale, hn::LoadU(d, to));
          }
          hn::StoreU(sums[r][c], d, to);
        }
      }
    }
  }
};

// Number of positions of the vector at scores + i that are among the first `visible`.
template <typename Element>
HWY_INLINE int64_t VisibleLanes(int64_t i, int64_t visible) {
  if constexpr (kPairs<Element>) {
    const int64_t odd = i / kLanes % 2;
    const int64_t rest = visible - (i - odd * kLanes);  // positions from the pairs' first one on
    return std::clamp<int64_t>((rest + 1 - odd) / 2, 0, kLanes);
  }
  return std::clamp<int64_t>(visible - i, 0, kLanes);
}

// Multiplies scores by the inverse norms of their positions' keys.
//   norms: [panels * kPanelPositions], in the order of positions
template <typename Element>
void ScaleByNorms(float* scores, int64_t panels, const float* norms) {
  const FloatTag d;
  const auto scale = [&](int64_t i, FloatVec norm) {
    hn::StoreU(hn::Mul(hn::LoadU(d, scores + i), norm), d, scores + i);
  };
  for (int64_t i = 0; i < panels * kPanelPositions; i += (kPairs<Element> ? 2 : 1) * kLanes) {
    if constexpr (kPairs<Element>) {
      FloatVec even, odd;
      hn::LoadInterleaved2(d, norms + i, even, odd);
      scale(i, even);
      scale(i + kLanes, odd);
    } else {
      scale(i, hn::LoadU(d, norms + i));
    }
  }
}

// Turns the products of q and k, scaled by 1 / cap, into scores.
void CapScores(float* scores, int64_t panels, float softcap) {
  const FloatTag d;
  const FloatVec cap = hn::Set(d, softcap);
  for (int64_t i = 0; i < panels * kPanelPositions; i += kLanes) {
    hn::StoreU(hn::Mul(cap, TanhOf(d, hn::LoadU(d, scores + i))), d, scores + i);
  }
}

// Turns the scores of positions `hidden` to `visible` - 1 into 2^(score - max), and the others into
// zero.
//   scores: [panels * kPanelPositions]
template <typename Element>
HWY_INLINE void Exponentiate(float* scores, int64_t hidden, int64_t visible, int64_t panels,
                             float* max, float* sum) {
  const FloatTag d;
  // Panels from `first` to `whole` are seen as a whole.
  const int64_t whole = visible / kPanelPositions * kPanelPositions;
  const int64_t first = std::min(CeilDiv(hidden, kPanelPositions) * kPanelPositions, whole);
  const int64_t end = panels * kPanelPositions;
  const auto seen = [&](int64_t i) {
    return hn::AndNot(hn::FirstN(d, VisibleLanes<Element>(i, hidden)),
                      hn::FirstN(d, VisibleLanes<Element>(i, visible)));
  };
  FloatVec largest = hn::Set(d, -INFINITY);
  const auto find_largest = [&](int64_t i) {
    largest = hn::IfThenElse(seen(i), hn::Max(largest, hn::LoadU(d, scores + i)), largest);
  };
  for (int64_t i = 0; i < first; i += kLanes) find_largest(i);
  for (int64_t i = first; i < whole; i += kLanes) {
    largest = hn::Max(largest, hn::LoadU(d, scores + i));
  }
  for (int64_t i = whole; i < end; i += kLanes) find_largest(i);
  largest = hn::MaxOfLanes(d, largest);
  FloatVec total = hn::Zero(d);
  const auto power = [&](int64_t i) {
    return PowerOfTwo(d, hn::Sub(hn::LoadU(d, scores + i), largest));
  };
  const auto add = [&](int64_t i, FloatVec weight) {
    total = hn::Add(total, weight);
    hn::StoreU(weight, d, scores + i);
  };
  for (int64_t i = 0; i < first; i += kLanes) add(i, hn::IfThenElseZero(seen(i), power(i)));
  for (int64_t i = first; i < whole; i += kLanes) add(i, power(i));
  for (int64_t i = whole; i < end; i += kLanes) add(i, hn::IfThenElseZero(seen(i), power(i)));
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

// Adds a tile's weighted values to the accumulators of all their elements. The accumulators are in
// memory, the weights in registers.
struct Weigh {
  static constexpr int kVectorsHeld = kWeights;

  template <bool kFetch, int kRows, int kPanels, typename Element>
  static HWY_INLINE void Compute(const AttentionSplit<Element>& s,
                                 const Tile<Element, kPanels>& tile) {
    const FloatTag d;
    const int64_t width = tile.width, stride = s.stride / kNumbers<Element>;
    const float* scores = s.scores + tile.row * kSplitPositions + tile.panel * kPanelPositions;
    float* sums = s.sums + tile.row * width * kLanes;
    constexpr int kColumns = kPanels * kVectors;
    for (int64_t begin = 0, end; begin < width; begin = end) {
      end = EndOfScale<Element>(tile.before, begin, width);
      FloatVec weights[kRows][kColumns];
      HWY_UNROLL(16)
      for (int c = 0; c < kColumns; ++c) {
        [[maybe_unused]] FloatVec scale;
        if constexpr (kHasScale<Element>) scale = LoadScale(s, tile.panel, c, tile.before + begin);
        HWY_UNROLL(16)
        for (int r = 0; r < kRows; ++r) {
          weights[r][c] = hn::LoadU(d, scores + r * kSplitPositions + c * kLanes);
          if constexpr (kHasScale<Element>) weights[r][c] = hn::Mul(weights[r][c], scale);
        }
      }
      for (int64_t e = begin; e < end; ++e) {
        if constexpr (kFetch) tile.Fetch(e);
        FloatVec some[kRows];
        HWY_UNROLL(16)
        for (int r = 0; r < kRows; ++r) some[r] = hn::LoadU(d, sums + (r * width + e) * kLanes);
        HWY_UNROLL(16)
        for (int c = 0; c < kColumns; ++c) {
          const FloatVec value = LoadPanel(tile.elements[c / kVectors] + e * stride, c % kVectors);
          HWY_UNROLL(16)
          for (int r = 0; r < kRows; ++r) some[r] = hn::MulAdd(weights[r][c], value, some[r]);
        }
        HWY_UNROLL(16)
        for (int r = 0; r < kRows; ++r) hn::StoreU(some[r], d, sums + (r * width + e) * kLanes);
      }
    }
  }
};

// Sums the weighted values for all queries, a few panels at a time.
template <typename Element>
void WeighPanels(const AttentionSplit<Element>& s) {
  const FloatTag d;
  const int64_t rows = s.groups * s.queries;
  std::fill_n(s.sums, rows * s.value_width * kLanes, 0.0f);
  const Part<Element> values{s.values, s.value_offset, s.value_width};
  ComputeTiles<Weigh, 1, kFewRows>(s, values);
  for (int64_t row = 0; row < rows; ++row) {
    const float* sums = s.sums + row * s.value_width * kLanes;
    const auto sum = [&](int64_t element) {
      return element < s.value_width ? hn::LoadU(d, sums + element * kLanes) : hn::Zero(d);
    };
    for (int64_t e = 0; e < s.value_width; e += kElements) {
      float some[kElements];
      StoreSums(sum(e), sum(e + 1), sum(e + 2), sum(e + 3), some);
      std::copy_n(some, std::min<int64_t>(kElements, s.value_width - e), s.out[row] + e);
    }
  }
}

// Multiplies the weights of a group's queries by the scales of an element of the values.
template <typename Element>
void ScaleWeights(const AttentionSplit<Element>& s, int64_t group, int64_t element) {
  const FloatTag d;
  const int vectors = static_cast<int>(s.panels) * kVectors;
  HWY_ALIGN float scales[kSplitPositions];
  for (int i = 0; i < vectors; ++i) hn::Store(LoadScale(s, 0, i, element), d, scales + i * kLanes);
  for (int64_t r = 0; r < s.queries; ++r) {
    const float* const from = s.scores + (group * s.queries + r) * kSplitPositions;
    float* const to = s.scaled + r * kSplitPositions;
    for (int64_t i = 0; i < vectors * kLanes; i += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, from + i), hn::Load(d, scales + i)), d, to + i);
    }
  }
}

// Sums kElements elements of the weighted values for all queries of a group.
//   weights: [queries, kSplitPositions]   values: [vectors of the panels, kElements, kLanes]
//   out: [queries, kElements]
void SumElements(const float* weights, const float* values, int64_t queries, int64_t positions,
                 float (*out)[kElements]) {
  const FloatTag d;
  ForEachTile<kElementRows>(queries, [&]<int kSome>(int64_t query) {
    const float* const first = weights + query * kSplitPositions;
    FloatVec sums[kSome][kElements];
    HWY_UNROLL(16)
    for (int r = 0; r < kSome; ++r) {
      HWY_UNROLL(16)
      for (int e = 0; e < kElements; ++e) sums[r][e] = hn::Zero(d);
    }
    for (int64_t i = 0; i < positions; i += kLanes) {
      ForEachProduct<kSome, kElements>(
          [&](int r) { return hn::LoadU(d, first + r * kSplitPositions + i); },
          [&](int e) { return hn::Load(d, values + i * kElements + e * kLanes); },
          [&](int r, int e, FloatVec weight, FloatVec value) {
            sums[r][e] = hn::MulAdd(weight, value, sums[r][e]);
          });
    }
    HWY_UNROLL(16)
    for (int r = 0; r < kSome; ++r) {
      StoreSums(sums[r][0], sums[r][1], sums[r][2], sums[r][3], out[query + r]);
    }
  });
}

// Sums the weighted values for all queries, kElements elements at a time. These are first copied,
// as float32, to a buffer that all queries of a group read; their accumulators stay in registers.
template <typename Element>
void WeighElements(const AttentionSplit<Element>& s) {
  const FloatTag d;
  HWY_ALIGN float values[kSplitPositions * kElements] = {};
  float sums[kSplitQueries][kElements];
  for (int64_t group = 0; group < s.groups; ++group) {
    const float* const weights =
        kHasScale<Element> ? s.scaled : s.scores + group * s.queries * kSplitPositions;
    const int64_t first = group * s.value_width;
    int64_t end = 0;  // of those that share a scale
    for (int64_t begin = 0, count; begin < s.value_width; begin += count) {
      if (begin == end) {
        end = EndOfScale<Element>(s.value_offset + first, begin, s.value_width);
        if constexpr (kHasScale<Element>) {
          ScaleWeights(s, group, s.value_offset + first + begin);
        }
      }
      count = std::min<int64_t>(kElements, end - begin);
      for (int64_t panel = 0; panel < s.panels; ++panel) {
        for (int64_t e = 0; e < count; ++e) {
          const Element* const from =
              s.values[panel] + (first + begin + e) * s.stride / kNumbers<Element>;
          float* const to = values + (panel * kVectors * kElements + e) * kLanes;
          HWY_UNROLL(16)
          for (int v = 0; v < kVectors; ++v) {
            hn::Store(LoadPanel(from, v), d, to + v * (kElements * kLanes));
          }
        }
      }
      SumElements(weights, values, s.queries, s.panels * kPanelPositions, sums);
      for (int64_t query = 0; query < s.queries; ++query) {
        std::copy_n(sums[query], count, s.out[group * s.queries + query] + begin);
      }
    }
  }
}

template <typename Element>
void AttendTiles(const AttentionSplit<Element>& s) {
  const Part<Element> keys{s.keys, s.key_offset, s.key_width};
  if (s.queries <= kFewQueries) {
    ComputeTiles<Score, 1, kFewRows>(s, keys);
  } else {
    ComputeTiles<Score, kScoreRows / 2 + 1, kScoreRows>(s, keys);
  }
  for (int64_t row = 0; row < s.groups * s.queries; ++row) {
    float* const scores = s.scores + row * kSplitPositions;
    const int64_t query = row % s.queries;
    if (s.inverse_norms != nullptr) ScaleByNorms<Element>(scores, s.panels, s.inverse_norms[row]);
    if (s.softcap > 0) CapScores(scores, s.panels, s.softcap);
    Exponentiate<Element>(scores, s.hidden[query], s.visible[query], s.panels, &s.max[row],
                          &s.sum[row]);
  }
  if (s.queries <= kFewQueries) {
    WeighPanels(s);
  } else {
    WeighElements(s);
  }
}

void AttendSplitFloat(const AttentionSplit<float>& s) { AttendTiles(s); }
void AttendSplitBFloat16(const AttentionSplit<uint16_t>& s) { AttendTiles(s); }
void AttendSplitInt8(const AttentionSplit<int8_t>& s) { AttendTiles(s); }
void AttendSplitInt4(const AttentionSplit<Int4Pair>& s) { AttendTiles(s); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace triptych::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace triptych::kernels {
namespace {

HWY_EXPORT(AttendSplitFloat);
HWY_EXPORT(AttendSplitBFloat16);
HWY_EXPORT(AttendSplitInt8);
HWY_EXPORT(AttendSplitInt4);

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
void AttendSplit(const AttentionSplit<Int4Pair>& split) {
  HWY_DYNAMIC_DISPATCH(AttendSplitInt4)(split);
}

}  // namespace triptych::kernels
#endif  // HWY_ONCE
