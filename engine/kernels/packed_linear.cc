#include "engine/kernels/packed_linear.h"

#include <algorithm>
#include <bit>
#include <cstddef>

// Compiled once for each instruction set; the best one is chosen at run time. Sums live in arrays
// of vectors, which vectors of unknown length do not allow: such machines run the fixed-length set.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#define HWY_WANT_AVX3_DL  // the first set that may have bfloat16 products
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/packed_linear.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/base/bfloat16.h"
#include "engine/base/ceil_div.h"
#include "engine/kernels/elements.h"
#include "engine/kernels/prefetch.h"

#ifndef TRIPTYCH_PACKED_LINEAR_ONCE
#define TRIPTYCH_PACKED_LINEAR_ONCE
namespace triptych {
namespace {

constexpr int64_t kPanel = 32;  // outputs that are computed together

// Rows of x against consecutive panels of one group.
struct Product {
  const void* x;        // [rows][x_stride] float32, or bfloat16 pairs
  const void* weights;  // [panels][steps][kPanel] float32, or bfloat16 pairs
  const float* bias;    // [panels][kPanel]
  float* y;             // [rows][y_stride]
  int64_t x_stride;     // in 32-bit elements, as `steps`
  int64_t y_stride;
  int64_t rows;
  int64_t steps;    // inputs, or pairs of inputs
  int64_t outputs;  // of all the panels; the last one may be partial
  bool prefetch;    // whether weights are fetched ahead, where rows are few
};

}  // namespace
}  // namespace triptych
#endif  // TRIPTYCH_PACKED_LINEAR_ONCE

HWY_BEFORE_NAMESPACE();
namespace triptych {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using FloatTag = hn::CappedTag<float, kPanel>;
using BitsTag = hn::RebindToUnsigned<FloatTag>;
using FloatVec = hn::Vec<FloatTag>;
using BitsVec = hn::Vec<BitsTag>;

constexpr int kVectors = static_cast<int>(kPanel / hn::MaxLanes(FloatTag()));  // of a panel
// Vectors of sums that fit into registers, next to weights and inputs.
#if !HWY_ARCH_X86
constexpr int kSums = 24;
#elif HWY_TARGET <= HWY_AVX3
constexpr int kSums = 16;  // of 32 registers; more rows need more pointers than there are
#else
constexpr int kSums = 12;
#endif
constexpr int kMaxRows = std::max(1, kSums / kVectors);

// The next three types say what one 32-bit element of weights and one of x contribute to a sum.
struct Float32 {
  using Element = float;
  static constexpr int kParts = 1;
  template <int kPart>
  static HWY_INLINE FloatVec Weights(const float* w) {
    return hn::LoadU(FloatTag(), w);
  }
  template <int kPart>
  static HWY_INLINE FloatVec Add(FloatVec sum, FloatVec w, float x) {
    return hn::MulAdd(w, hn::Set(FloatTag(), x), sum);
  }
};

// An element is a pair, the first of which is in the lower half.
struct BFloat16 {
  using Element = uint32_t;
  static constexpr int kParts = 2;
  template <int kPart>
  static HWY_INLINE FloatVec Widen(BitsVec pairs) {
    const BitsTag d;
    return hn::BitCast(FloatTag(), kPart == 0 ? hn::ShiftLeft<16>(pairs)
                                              : hn::And(pairs, hn::Set(d, 0xffff0000u)));
  }
  template <int kPart>
  static HWY_INLINE FloatVec Weights(const uint32_t* w) {
    return Widen<kPart>(hn::LoadU(BitsTag(), w));
  }
  template <int kPart>
  static HWY_INLINE FloatVec Add(FloatVec sum, FloatVec w, uint32_t x) {
    return hn::MulAdd(w, Widen<kPart>(hn::Set(BitsTag(), x)), sum);
  }
};

#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3_DL
#define TRIPTYCH_BFLOAT16_DOT 1
// Not every processor of these sets has the instruction, so the compiler must not know it.
struct BFloat16Dot {
  using Element = uint32_t;
  static constexpr int kParts = 1;
  template <int kPart>
  static HWY_INLINE BitsVec Weights(const uint32_t* w) {
    return hn::LoadU(BitsTag(), w);
  }
  template <int kPart>
  static HWY_INLINE FloatVec Add(FloatVec sum, BitsVec w, uint32_t x) {
    const BitsVec pairs = hn::Set(BitsTag(), x);
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(w.raw), "v"(pairs.raw));
    return sum;
  }
};
#else
#define TRIPTYCH_BFLOAT16_DOT 0
#endif

// Where few rows leave a processor waiting for weights, they are fetched so many bytes ahead: in
// each panel, so that several panels keep as many lines on their way as a core can.
constexpr int64_t kAhead = 1024;
constexpr int kFewRows = 4;

// Adds part kPart of one step to the sums.
template <class Kind, int kPart, int kRows, int kColumns>
HWY_INLINE void AddPart(const typename Kind::Element* const (&x)[kRows],
                        const typename Kind::Element* const (&weights)[kColumns], int64_t step,
                        FloatVec (&sums)[kRows][kColumns]) {
  decltype(Kind::template Weights<kPart>(weights[0])) w[kColumns];
  HWY_UNROLL(24)
  for (int c = 0; c < kColumns; ++c)
    w[c] = Kind::template Weights<kPart>(weights[c] + step * kPanel);
  HWY_UNROLL(24)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(24)
    for (int c = 0; c < kColumns; ++c) {
      sums[r][c] = Kind::template Add<kPart>(sums[r][c], w[c], x[r][step]);
    }
  }
}

// Multiplies kRows rows, from `row` on, by kPanels panels, from `panel` on.
template <class Kind, bool kPrefetch, int kRows, int kPanels>
void Tile(const Product& p, int64_t row, int64_t panel) {
  using Element = typename Kind::Element;
  constexpr int kColumns = kPanels * kVectors;
  constexpr int64_t kLanes = kPanel / kVectors;
  const FloatTag d;
  const Element* x[kRows];
  const Element* weights[kColumns];
  FloatVec sums[kRows][kColumns];
  for (int r = 0; r < kRows; ++r) {
    x[r] = static_cast<const Element*>(p.x) + (row + r) * p.x_stride;
  }
  HWY_UNROLL(24)
  for (int c = 0; c < kColumns; ++c) {
    weights[c] = static_cast<const Element*>(p.weights) +
                 (panel + c / kVectors) * p.steps * kPanel + c % kVectors * kLanes;
    const FloatVec bias = hn::LoadU(d, p.bias + panel * kPanel + c * kLanes);
    HWY_UNROLL(24)
    for (int r = 0; r < kRows; ++r) sums[r][c] = bias;
  }
  for (int64_t step = 0; step < p.steps; ++step) {
    if constexpr (kPrefetch) {
      constexpr int kVectorsOfLine = std::max<int>(kLineBytes / sizeof(Element) / kLanes, 1);
      HWY_UNROLL(24)
      for (int c = 0; c < kColumns; c += kVectorsOfLine) {
        Prefetch(weights[c] + step * kPanel, kAhead);
      }
    }
    AddPart<Kind, 0>(x, weights, step, sums);
    if constexpr (Kind::kParts == 2) AddPart<Kind, 1>(x, weights, step, sums);
  }

  const int64_t columns = std::min<int64_t>(kPanels * kPanel, p.outputs - panel * kPanel);
  HWY_UNROLL(24)
  for (int r = 0; r < kRows; ++r) {
    float* y = p.y + (row + r) * p.y_stride + panel * kPanel;
    float whole[kPanels * kPanel];
    float* out = columns == kPanels * kPanel ? y : whole;
    HWY_UNROLL(24)
    for (int c = 0; c < kColumns; ++c) hn::StoreU(sums[r][c], d, out + c * kLanes);
    if (out == whole) std::copy_n(whole, columns, y);
  }
}

// Multiplies kRows rows by panels `panel` to `end` - 1, kPanels at a time and then fewer: several
// panels are what keeps a processor busy when the rows are few.
template <class Kind, bool kPrefetch, int kRows, int kPanels>
HWY_INLINE void TilePanels(const Product& p, int64_t row, int64_t panel, int64_t end) {
  for (; panel + kPanels <= end; panel += kPanels) {
    Tile<Kind, kPrefetch, kRows, kPanels>(p, row, panel);
  }
  if constexpr (kPanels > 1) TilePanels<Kind, kPrefetch, kRows, kPanels - 1>(p, row, panel, end);
}

// Multiplies `rows` rows, 1 to kRows of them, by panels `panel` to `end` - 1.
template <class Kind, int kRows>
HWY_INLINE void TileRows(const Product& p, int64_t row, int64_t rows, int64_t panel, int64_t end) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return TileRows<Kind, kRows - 1>(p, row, rows, panel, end);
  }
  constexpr int kPanels = std::clamp(kSums / (kRows * kVectors), 1, 4);
  if constexpr (kRows <= kFewRows) {
    if (p.prefetch) return TilePanels<Kind, true, kRows, kPanels>(p, row, panel, end);
  }
  TilePanels<Kind, false, kRows, kPanels>(p, row, panel, end);
}

template <class Kind>
void Multiply(const Product& p) {
  const int64_t panels = CeilDiv(p.outputs, kPanel);
  const int64_t tiles = CeilDiv(p.rows, kMaxRows);
  // Weights that several tiles read are read while they are in a cache.
  const int64_t span = tiles == 1 ? panels : 2;
  for (int64_t panel = 0; panel < panels; panel += span) {
    for (int64_t i = 0; i < tiles; ++i) {
      const int64_t row = p.rows * i / tiles;
      TileRows<Kind, kMaxRows>(p, row, p.rows * (i + 1) / tiles - row, panel,
                               std::min(panel + span, panels));
    }
  }
}

void MultiplyFloat32(const Product& p) { Multiply<Float32>(p); }
void MultiplyBFloat16(const Product& p) {
#if TRIPTYCH_BFLOAT16_DOT
  if (HasBFloat16Products()) return Multiply<BFloat16Dot>(p);
#endif
  Multiply<BFloat16>(p);
}
#undef TRIPTYCH_BFLOAT16_DOT

// Rounds to bfloat16, in pairs; a zero follows an odd last one.
//   x: [count]   pairs: [(count + 1) / 2]
void RoundToBFloat16(const float* x, int64_t count, void* pairs) {
  auto* const rounded = static_cast<uint16_t*>(pairs);
  for (int64_t i = 0; i < count; ++i) rounded[i] = ToBFloat16(x[i]);
  if (count % 2 != 0) rounded[count] = 0;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace triptych
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace triptych {
namespace {

HWY_EXPORT(MultiplyFloat32);
HWY_EXPORT(MultiplyBFloat16);
HWY_EXPORT(RoundToBFloat16);

// Rows that keep the cost of reading weights small.
constexpr int64_t kTaskRows = 48;
// Bytes of the weights from which on fetching them ahead pays: most come from memory then.
constexpr int64_t kPrefetchBytes = int64_t{1} << 20;
// Copying one weight costs about as much as this many multiply-adds.
constexpr int64_t kCopyWork = 16;

auto MultiplyFunction(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat32:
      return HWY_DYNAMIC_DISPATCH(MultiplyFloat32);
    case WeightFormat::kBFloat16:
      return HWY_DYNAMIC_DISPATCH(MultiplyBFloat16);
  }
  __builtin_unreachable();
}

// How a product is cut into tasks: each is a part of a group's panels, for a part of the rows.
struct Cut {
  Cut(int64_t wanted, int64_t groups, int64_t panels_in, int64_t rows_in)
      : panels(panels_in), rows(rows_in) {
    panel_parts = std::min(CeilDiv(wanted, groups), panels);
    row_parts = std::clamp<int64_t>(wanted / (groups * panel_parts), 1, CeilDiv(rows, kTaskRows));
  }

  int64_t group(int64_t task) const { return task / (panel_parts * row_parts); }
  int64_t first_panel(int64_t task) const { return PartBegin(task / row_parts % panel_parts); }
  int64_t panel_end(int64_t task) const { return PartBegin(task / row_parts % panel_parts + 1); }
  int64_t first_row(int64_t task) const { return rows * (task % row_parts) / row_parts; }
  int64_t row_end(int64_t task) const { return rows * (task % row_parts + 1) / row_parts; }

  // One row reads four panels at a time: no part ends amid them if there are enough.
  int64_t PartBegin(int64_t part) const {
    const int64_t unit = panels >= 4 * panel_parts ? 4 : 1;
    return std::min(CeilDiv(panels, unit) * part / panel_parts * unit, panels);
  }

  int64_t panels;  // of a group
  int64_t rows;
  int64_t panel_parts;
  int64_t row_parts;
};

}  // namespace

PackedLinear::PackedLinear(const Shape& shape, WeightFormat format, const void* weight,
                           const float* bias)
    : shape_(shape), format_(format) {
  VisitElements(format, weight, [&](const auto* elements) { Pack(elements, bias); });
}

int64_t PackedLinear::panels() const { return CeilDiv(shape_.outputs, kPanel); }

int64_t PackedLinear::steps() const {
  return CeilDiv(WeightBytes(format_, shape_.inputs), sizeof(float));
}

template <typename Element>
void PackedLinear::Pack(const Element* weight, const float* bias) {
  static_assert(std::endian::native == std::endian::little);  // the order of a pair
  constexpr int64_t kPair = sizeof(float) / sizeof(Element);
  const int64_t panels = this->panels(), steps = this->steps();
  const size_t bytes = shape_.groups * panels * (steps + 1) * kPanel * sizeof(float);
  packed_ = LargePages(bytes);
  auto* panel = reinterpret_cast<Element*>(packed_.data());
  auto* packed_bias =
      reinterpret_cast<float*>(packed_.data()) + shape_.groups * panels * steps * kPanel;
  for (int64_t g = 0; g < shape_.groups; ++g) {
    for (int64_t n = 0; n < shape_.outputs; ++n) {
      const int64_t output = g * shape_.outputs + n, column = n % kPanel;
      Element* to = panel + (g * panels + n / kPanel) * steps * kPanel * kPair;
      const Element* from = weight + output * shape_.inputs;
      for (int64_t k = 0; k < shape_.inputs; ++k) {
        to[(k / kPair * kPanel + column) * kPair + k % kPair] = from[k];
      }
      if (bias != nullptr) packed_bias[g * panels * kPanel + n] = bias[output];
    }
  }
}

void PackedLinear::Apply(const float* x, int64_t rows, float* y, KernelContext& context) const {
  Apply(x, {shape_.groups * shape_.inputs, shape_.inputs}, rows, y,
        {shape_.groups * shape_.outputs, shape_.outputs}, context);
}

void PackedLinear::Apply(const float* x, const Strides& x_strides, int64_t rows, float* y,
                         const Strides& y_strides, KernelContext& context) const {
  ApplyGroups({0, shape_.groups}, x, x_strides, rows, y, y_strides, context);
}

void PackedLinear::ApplyGroup(int64_t group, const float* x, int64_t x_stride, int64_t rows,
                              float* y, int64_t y_stride, KernelContext& context) const {
  ApplyGroups({group, 1}, x, {x_stride, 0}, rows, y, {y_stride, 0}, context);
}

void PackedLinear::ApplyGroups(const Groups& groups, const float* x, const Strides& x_strides,
                               int64_t rows, float* y, const Strides& y_strides,
                               KernelContext& context) const {
  if (rows == 0) return;
  const bool round = format_ == WeightFormat::kBFloat16;
  const int64_t inputs = shape_.inputs, width = groups.count * steps();
  // Rows a multiple of 4 KiB apart would all fall into the same few lines of a cache.
  const bool apart = rows > 2 && (round ? width : x_strides.row) % 1024 == 0;
  if (!round && !apart) return Multiply(groups, x, x_strides, rows, y, y_strides, context);
  const Strides strides{width + (apart ? 16 : 0), steps()};
  const Workspace::Scope scope(context.workspace);
  float* const copy = context.workspace.Floats(rows * strides.row);  // [rows, groups, steps]
  context.pool.ForEach(rows, rows * groups.count * inputs, [&](int64_t row) {
    for (int64_t group = 0; group < groups.count; ++group) {
      const float* from = x + row * x_strides.row + group * x_strides.group;
      float* to = copy + row * strides.row + group * strides.group;
      if (round) {
        HWY_DYNAMIC_DISPATCH(RoundToBFloat16)(from, inputs, to);
      } else {
        std::copy_n(from, inputs, to);
      }
    }
  });
  Multiply(groups, copy, strides, rows, y, y_strides, context);
}

void PackedLinear::Multiply(const Groups& groups, const float* x, const Strides& x_strides,
                            int64_t rows, float* y, const Strides& y_strides,
                            KernelContext& context) const {
  const int64_t panels = this->panels(), steps = this->steps();
  const int64_t group_elements = panels * steps * kPanel;  // 32-bit ones
  const auto* weights = reinterpret_cast<const float*>(packed_.data());
  const float* bias = weights + shape_.groups * group_elements;
  const auto multiply = MultiplyFunction(format_);
  const bool prefetch =
      groups.count * group_elements * static_cast<int64_t>(sizeof(float)) >= kPrefetchBytes;
  const int64_t wanted =
      context.pool.TaskCount(rows * groups.count * panels * kPanel * shape_.inputs);
  const Cut cut(wanted, groups.count, panels, rows);
  const auto run = [&](int64_t task) {
    const int64_t group = cut.group(task), row = cut.first_row(task);
    const int64_t panel = cut.first_panel(task);
    const int64_t packed_panel = (groups.first + group) * panels + panel;
    const int64_t outputs = std::min(shape_.outputs, cut.panel_end(task) * kPanel) - panel * kPanel;
    multiply({.x = x + row * x_strides.row + group * x_strides.group,
              .weights = weights + packed_panel * steps * kPanel,
              .bias = bias + packed_panel * kPanel,
              .y = y + row * y_strides.row + group * y_strides.group + panel * kPanel,
              .x_stride = x_strides.row,
              .y_stride = y_strides.row,
              .rows = cut.row_end(task) - row,
              .steps = steps,
              .outputs = outputs,
              .prefetch = prefetch});
  };
  const int64_t tasks = groups.count * cut.panel_parts * cut.row_parts;
  if (wanted == 1) {
    for (int64_t task = 0; task < tasks; ++task) run(task);
  } else {
    context.pool.Run(tasks, run);
  }
}

void PackedLinear::CopyWeights(const int64_t* outputs, int64_t rows, float* y,
                               KernelContext& context) const {
  VisitElements(format_, packed_.data(), [&]<typename Element>(const Element* packed) {
    constexpr int64_t kPair = sizeof(float) / sizeof(Element);
    const int64_t inputs = shape_.inputs, panel_elements = steps() * kPanel * kPair;
    context.pool.ForEach(rows, rows * inputs * kCopyWork, [&](int64_t row) {
      const int64_t panel = outputs[row] / kPanel, column = outputs[row] % kPanel;
      const Element* from = packed + panel * panel_elements + column * kPair;
      float* to = y + row * inputs;
      for (int64_t k = 0; k < inputs; ++k) {
        to[k] = ToFloat(from[k / kPair * kPanel * kPair + k % kPair]);
      }
    });
  });
}

}  // namespace triptych
#endif  // HWY_ONCE
