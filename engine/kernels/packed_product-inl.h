// Products of the kinds of packed_kinds-inl.h, in tiles of rows and outputs that fit in registers.
// The source of each format includes this file once for each instruction set.
#if defined(TRIPTYCH_ENGINE_KERNELS_PACKED_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIPTYCH_ENGINE_KERNELS_PACKED_PRODUCT_INL_H_
#undef TRIPTYCH_ENGINE_KERNELS_PACKED_PRODUCT_INL_H_
#else
#define TRIPTYCH_ENGINE_KERNELS_PACKED_PRODUCT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "engine/base/ceil_div.h"
#include "engine/kernels/load-inl.h"
#include "engine/kernels/packed_format.h"
#include "engine/kernels/packed_kinds-inl.h"
#include "engine/kernels/packed_product.h"
#include "engine/kernels/prefetch.h"
#include "engine/kernels/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace triptych::kernels {
namespace HWY_NAMESPACE {

// Vector registers; most accumulators of a tile; fewest accumulators of a row of one.
#if !HWY_ARCH_X86
constexpr int kRegisters = 32, kSums = 24, kLeastColumns = 4;
#elif HWY_TARGET <= HWY_AVX3
// More rows would need more pointers than there are registers for.
constexpr int kRegisters = 32, kSums = 16, kLeastColumns = 2;
#else
constexpr int kRegisters = 16, kSums = 12, kLeastColumns = 2;
#endif

// Whether a tile of rows x columns (vectors of outputs) fits in registers: its accumulators, the
// smaller operand, one vector of the larger, and scratch.
template <class Kind>
constexpr bool Fits(int rows, int columns) {
  return rows * columns <= kSums &&
         rows * columns + Kind::kHeld * (std::min(rows, columns) + 1) + Kind::kScratch <=
             kRegisters;
}

// Panels whose weights stay in a core's L2 cache while several tiles of rows read them.
constexpr int64_t kPanelsForTiles = kVectors > 2 ? 3 : 2;

// Columns of a tile of `rows` rows: up to four panels, whose weights are loaded concurrently, or a
// divisor of kPanelsForTiles panels.
template <class Kind>
constexpr int ColumnsFor(int rows) {
  int columns = 4 * kVectors;
  while (columns > kVectors && !Fits<Kind>(rows, columns)) columns -= kVectors;
  if (Fits<Kind>(rows, columns)) return columns;
  while (!Fits<Kind>(rows, columns) || kPanelsForTiles * kVectors % columns != 0) --columns;
  return columns;
}

template <class Kind>
constexpr int MaxRows() {
  int rows = kSums / kLeastColumns;
  while (!Fits<Kind>(rows, kLeastColumns)) --rows;
  return rows;
}

// The weights that a tile prefetches.
enum class Fetch {
  kNothing,
  kAhead,  // its own weights, shortly before they are read
  kNext,   // a part of Product::next
};

// Prefetch distance of weights from memory, in bytes, divided among the panels that are read. It is
// short enough for the hardware prefetcher to detect the stream and continue it.
constexpr int64_t kAhead = 8192;
template <int kColumns>
constexpr int64_t AheadInPanel() {
  return kAhead / std::max<int64_t>(CeilDiv(kColumns, kVectors), 2);
}

// Most bytes of Product::next that a tile prefetches per accumulator and step; per step, at most
// one cache line. A core has few outstanding lines, and more would delay the tile's own weights.
constexpr float kFetchedOfSum = 32.0f / kLanes;

// A tile's part of Product::next: `bytes` per step.
struct NextPart {
  const std::byte* weights;
  int64_t offset;
  int64_t bytes;

  HWY_INLINE void Step() {
    Prefetch(weights, offset);
    offset += bytes;
  }
};

// Adds part kPart of one step to the sums.
template <class Kind, int kPart, int kRows, int kColumns>
HWY_INLINE void AddPart(const std::byte* const (&x)[kRows], int64_t word,
                        const std::byte* const (&weights)[kColumns], int64_t offset,
                        typename Kind::Sum (&sums)[kRows][kColumns]) {
  ForEachProduct<kRows, kColumns>(
      [&](int r) { return Kind::Input(x[r] + (word + kPart) * kWordBytes); },
      [&](int c) { return Kind::template Weights<kPart>(weights[c] + offset); },
      [&](int r, int c, const auto& input, const auto& w) {
        sums[r][c] = Kind::Add(sums[r][c], w, input);
      });
}

// Adds one step, given its first word of x and the offset of its weights.
template <class Kind, Fetch kFetch, int kRows, int kColumns>
HWY_INLINE void AddStep(const std::byte* const (&x)[kRows], int64_t word,
                        const std::byte* const (&weights)[kColumns], int64_t offset, NextPart& next,
                        typename Kind::Sum (&sums)[kRows][kColumns]) {
  if constexpr (kFetch == Fetch::kNext) next.Step();
  if constexpr (kFetch == Fetch::kAhead) {
    constexpr int64_t kVectorBytes = kLanes * Packed(Kind::kFormat).step_bytes;
    constexpr int kVectorsOfLine = std::max<int>(kLineBytes / kVectorBytes, 1);
    HWY_UNROLL(24)
    for (int c = 0; c < kColumns; c += kVectorsOfLine) {
      Prefetch(weights[c] + offset, AheadInPanel<kColumns>());
    }
  }
  if constexpr (kRows == 1 && Kind::kParts == 2) {
    // Both parts of a vector of weights before the next one, so that it is loaded only once.
    const auto first = Kind::Input(x[0] + word * kWordBytes);
    const auto second = Kind::Input(x[0] + (word + 1) * kWordBytes);
    HWY_UNROLL(24)
    for (int c = 0; c < kColumns; ++c) {
      const std::byte* const w = weights[c] + offset;
      sums[0][c] = Kind::Add(sums[0][c], Kind::template Weights<0>(w), first);
      sums[0][c] = Kind::Add(sums[0][c], Kind::template Weights<1>(w), second);
    }
    return;
  }
  AddPart<Kind, 0>(x, word, weights, offset, sums);
  if constexpr (Kind::kParts > 1) AddPart<Kind, 1>(x, word, weights, offset, sums);
  if constexpr (Kind::kParts > 2) AddPart<Kind, 2>(x, word, weights, offset, sums);
  if constexpr (Kind::kParts > 3) AddPart<Kind, 3>(x, word, weights, offset, sums);
}

// Adds one unit of integers, times its scales, to the sums.
template <class Kind, Fetch kFetch, int kRows, int kColumns>
HWY_INLINE void AddScaledUnit(const std::byte* const (&x)[kRows], int64_t word,
                              const std::byte* const (&weights)[kColumns],
                              const std::byte* const (&scales)[kColumns], int64_t offset,
                              NextPart& next, FloatVec (&sums)[kRows][kColumns]) {
  constexpr PackedFormat kPacked = Packed(Kind::kFormat);
  const FloatTag d;
  const auto correction = [&](int r) {
    return hn::Set(IntTag(), LoadWord<int32_t>(x[r] + (word + UnitWords<Kind>() - 2) * kWordBytes));
  };
  typename Kind::Sum parts[kRows][kColumns];
  HWY_UNROLL(24)
  for (int r = 0; r < kRows; ++r) {
    const typename Kind::Sum start = Kind::Start(correction(r));
    HWY_UNROLL(24)
    for (int c = 0; c < kColumns; ++c) parts[r][c] = start;
  }
  for (int64_t step = 0; step < kPacked.steps; ++step) {
    AddStep<Kind, kFetch>(x, word + step * Kind::kParts, weights,
                          offset + step * kPanel * kPacked.step_bytes, next, parts);
  }
  HWY_UNROLL(24)
  for (int c = 0; c < kColumns; ++c) {
    if constexpr (kFetch == Fetch::kAhead) {
      if (c % kVectors == 0) Prefetch(scales[c] + offset, AheadInPanel<kColumns>());
    }
    const FloatVec scale = LoadFloats(d, reinterpret_cast<const uint16_t*>(scales[c] + offset));
    HWY_UNROLL(24)
    for (int r = 0; r < kRows; ++r) {
      const FloatVec x_scale = Float32::Input(x[r] + (word + UnitWords<Kind>() - 1) * kWordBytes);
      const FloatVec part = hn::ConvertTo(d, Kind::Finish(parts[r][c], correction(r)));
      sums[r][c] = hn::MulAdd(hn::Mul(part, x_scale), scale, sums[r][c]);
    }
  }
}

// Consecutive units of all panels.
struct Units {
  int64_t begin;
  int64_t end;
};

// Multiplies kRows rows, from `row` on, by these units of kColumns vectors of outputs, from
// `column` on. Starts from the bias at unit 0, otherwise from the sums in y.
template <class Kind, Fetch kFetch, int kRows, int kColumns>
void Tile(const Product& p, const Units& units, int64_t row, int64_t column) {
  constexpr PackedFormat kPacked = Packed(Kind::kFormat);
  constexpr int64_t kUnitBytes = kPacked.panel_bytes();
  constexpr int64_t kOutputs = kColumns * kLanes;
  const FloatTag d;
  const int64_t output = column * kLanes;
  const int64_t outputs = std::min(kOutputs, p.outputs - output);
  if (outputs <= 0) return;  // beyond the last output
  const std::byte* x[kRows];
  const std::byte* weights[kColumns];
  const std::byte* scales[kColumns];
  FloatVec sums[kRows][kColumns];
  for (int r = 0; r < kRows; ++r) {
    x[r] = p.x + (row + r) * p.x_stride * kWordBytes;
  }
  HWY_UNROLL(24)
  for (int c = 0; c < kColumns; ++c) {
    const int64_t panel = (column + c) / kVectors;
    const int64_t lane = (column + c) % kVectors * kLanes;  // of the panel
    weights[c] = p.weights + panel * p.units * kUnitBytes + lane * kPacked.step_bytes;
    scales[c] = weights[c] + kPanel * kPacked.steps * kPacked.step_bytes +
                lane * (kPacked.scale_bytes - kPacked.step_bytes);
  }
  float whole[kOutputs] = {};
  HWY_UNROLL(24)
  for (int r = 0; r < kRows; ++r) {
    const float* from = p.bias + output;
    if (units.begin > 0) {
      from = p.y + (row + r) * p.y_stride + output;
      if (outputs < kOutputs) {
        std::copy_n(from, outputs, whole);
        from = whole;
      }
    }
    HWY_UNROLL(24)
    for (int c = 0; c < kColumns; ++c) sums[r][c] = hn::LoadU(d, from + c * kLanes);
  }
  NextPart next;
  if constexpr (kFetch == Fetch::kNext) {
    const Next& all = p.next;
    const int64_t steps = (units.end - units.begin) * kPacked.steps;
    const float each =  // bytes per accumulator and step
        std::min({static_cast<float>(all.bytes) / static_cast<float>(steps * all.rows * kVectors),
                  kFetchedOfSum, kLineBytes / (1.0f * kRows * kColumns)});
    const int64_t before = (row - (p.rows - all.rows)) * all.panels * kVectors + column * kRows;
    // Goes through one panel after another. At the end of `bytes`, a tile continues in the same
    // panel.
    const auto offset = static_cast<int64_t>(each * static_cast<float>(before * steps));
    next = {.weights = all.weights,
            .offset = offset / all.bytes * all.stride + offset % all.bytes,
            .bytes = static_cast<int64_t>(each * kRows * kColumns)};
  }
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const int64_t word = unit * UnitWords<Kind>(), offset = (unit - p.first_unit) * kUnitBytes;
    if constexpr (kPacked.scale_bytes > 0) {
      AddScaledUnit<Kind, kFetch>(x, word, weights, scales, offset, next, sums);
    } else {
      AddStep<Kind, kFetch>(x, word, weights, offset, next, sums);
    }
  }

  HWY_UNROLL(24)
  for (int r = 0; r < kRows; ++r) {
    float* y = p.y + (row + r) * p.y_stride + output;
    float* out = outputs == kOutputs ? y : whole;
    HWY_UNROLL(24)
    for (int c = 0; c < kColumns; ++c) hn::StoreU(sums[r][c], d, out + c * kLanes);
    if (out == whole) std::copy_n(whole, outputs, y);
  }
}

// Multiplies kRows rows by vectors `column` to `end` - 1 of outputs, which are whole panels:
// kColumns at a time, and the rest, a multiple of kStep, in one tile.
template <class Kind, Fetch kFetch, int kRows, int kColumns,
          int kStep = std::gcd(kColumns, kVectors)>
HWY_INLINE void TileColumns(const Product& p, const Units& units, int64_t row, int64_t column,
                            int64_t end) {
  for (; column + kColumns <= end; column += kColumns) {
    Tile<Kind, kFetch, kRows, kColumns>(p, units, row, column);
  }
  if constexpr (kColumns > kStep) {
    TileColumns<Kind, kFetch, kRows, kColumns - kStep, kStep>(p, units, row, column, end);
  }
}

// Multiplies `rows` rows, 1 to kRows of them, by the first `end` vectors.
template <class Kind, Fetch kFetch, int kRows>
HWY_INLINE void TileRows(const Product& p, const Units& units, int64_t row, int64_t rows,
                         int64_t end) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return TileRows<Kind, kFetch, kRows - 1>(p, units, row, rows, end);
  }
  TileColumns<Kind, kFetch, kRows, ColumnsFor<Kind>(kRows)>(p, units, row, 0, end);
}

// Most rows of a tile that reads whole panels; at least 1.
template <class Kind>
constexpr int WholePanelRows() {
  int rows = MaxRows<Kind>();
  while (rows > 1 && ColumnsFor<Kind>(rows) < kVectors) --rows;
  return rows;
}

// Bytes of kPanelsForTiles panels that several tiles of rows read at a time.
constexpr int64_t kBytesForTiles = int64_t{1} << 17;
// With at least kTilesToWiden tiles, bfloat16 weights are widened to float32 once for all of them,
// in a buffer that fits in L1.
constexpr int64_t kTilesToWiden = 4;
constexpr int64_t kBytesWidened = int64_t{1} << 14;
constexpr int64_t kPanelsWidened = 1;
// Most rows that prefetch Product::next: with more, a step would prefetch only a few bytes.
constexpr int64_t kFetchingRows = 30;

// Multiplies rows `first` to `last` - 1, in the fewest tiles.
template <class Kind, Fetch kFetch>
HWY_INLINE void MultiplyRows(const Product& p, const Units& units, int64_t first, int64_t last,
                             int64_t end) {
  const int64_t rows = last - first, tiles = CeilDiv(rows, MaxRows<Kind>());
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t begin = rows * i / tiles;
    TileRows<Kind, kFetch, MaxRows<Kind>()>(p, units, first + begin, rows * (i + 1) / tiles - begin,
                                            end);
  }
}

// Multiplies rows from `first` on by these units of the first `end` vectors. The last rows prefetch
// p.next.
template <class Kind>
HWY_INLINE void MultiplyRows(const Product& p, const Units& units, int64_t first, int64_t end) {
  const int64_t fetching = p.rows - p.next.rows;
  MultiplyRows<Kind, Fetch::kNothing>(p, units, first, fetching, end);
  MultiplyRows<Kind, Fetch::kNext>(p, units, fetching, p.rows, end);
}

// The same for all rows. Weights from memory are first read by the most rows that read whole
// panels, which is fastest; the other rows find them in L2.
template <class Kind>
HWY_INLINE void MultiplyPart(const Product& p, const Units& units, int64_t end) {
  int64_t first = 0;
  if (p.prefetch) {
    first = WholePanelRows<Kind>();
    TileRows<Kind, Fetch::kAhead, WholePanelRows<Kind>()>(p, units, 0, first, end);
  }
  MultiplyRows<Kind>(p, units, first, end);
}

// Multiplies all rows of `part` by weights that it widens to float32 first.
using MultiplyWidened = void (*)(const Product& part, const Units& units, int64_t end);

template <class Kind, MultiplyWidened kWidened = nullptr>
void Multiply(const Product& p) {
  constexpr int64_t kUnitBytes = Packed(Kind::kFormat).panel_bytes();
  const int64_t panels = CeilDiv(p.outputs, kPanel);
  constexpr int kFirst = WholePanelRows<Kind>();
  if (p.rows <= kFirst) {  // every weight is read once
    const Units all{0, p.units};
    if (p.prefetch) {
      TileRows<Kind, Fetch::kAhead, kFirst>(p, all, 0, p.rows, panels * kVectors);
    } else {
      TileRows<Kind, Fetch::kNothing, kFirst>(p, all, 0, p.rows, panels * kVectors);
    }
    return;
  }
  const bool widens = kWidened != nullptr && CeilDiv(p.rows, MaxRows<Kind>()) >= kTilesToWiden;
  const int64_t span = widens ? kPanelsWidened : kPanelsForTiles;
  const int64_t length = (widens ? kBytesWidened / 2 : kBytesForTiles) / (span * kUnitBytes);
  const auto weights = [&](int64_t panel, int64_t unit) {
    return p.weights + (panel * p.units + unit) * kUnitBytes;
  };
  for (int64_t panel = 0; panel < panels; panel += span) {
    Product part = p;
    part.weights = weights(panel, 0);
    part.bias += panel * kPanel;
    part.y += panel * kPanel;
    part.outputs -= panel * kPanel;
    Next& next = part.next;
    if (p.prefetch) next.rows = std::min(widens ? p.rows : p.rows - kFirst, kFetchingRows);
    next.panels = std::min(span, panels - panel);
    next.stride = p.units * kUnitBytes;
    const int64_t end = next.panels * kVectors;
    for (int64_t unit = 0; unit < p.units; unit += length) {
      const Units units{.begin = unit, .end = std::min(unit + length, p.units)};
      next.weights = units.end < p.units     ? weights(panel, units.end)
                     : panel + span < panels ? weights(panel + span, 0)
                                             : weights(panel, unit);
      next.bytes = (units.end - unit) * kUnitBytes;
      if constexpr (kWidened != nullptr) {
        if (widens) {
          kWidened(part, units, end);
          continue;
        }
      }
      MultiplyPart<Kind>(part, units, end);
    }
  }
}

template <class Kind, MultiplyWidened kWidened = nullptr>
ProductKernel KernelOf(void (*prepare)(const float*, int64_t, std::byte*)) {
  return {
      .multiply = Multiply<Kind, kWidened>, .prepare = prepare, .unit_words = UnitWords<Kind>()};
}

// The kernel of integer weights: of Kind, or of byte products if only some processors of this set
// have them and this CPU does.
template <class Kind>
ProductKernel IntegerKernelOf() {
#if TRIPTYCH_SOME_ADD_BYTES
  using Bytes = QuadsAtOnce<Kind::kFormat>;
  if (HasByteProducts()) return KernelOf<Bytes>(RoundToIntegers<Bytes>);
#endif
  return KernelOf<Kind>(RoundToIntegers<Kind>);
}

}  // namespace HWY_NAMESPACE
}  // namespace triptych::kernels
HWY_AFTER_NAMESPACE();

#endif
