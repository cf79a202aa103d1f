#include "engine/kernels/paged_rows.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "engine/kernels/elements.h"
#include "engine/kernels/hadamard.h"

namespace triptych::kernels {
namespace {

// Approximate cost of writing one element, in multiply-adds.
constexpr int64_t kElementWork = 32;

// Elements begin to end - 1 of every row, as stored.
struct ElementRange {
  int64_t begin;
  int64_t end;
};

// Elements of a row that are written together.
template <typename Element>
constexpr int64_t kUnit = kHasScale<Element> ? kQuantizationGroup : 1;

// Positions of a run in one panel of a block.
struct Columns {
  int64_t first;
  int64_t count;
  int64_t written;  // those beyond `count` become zero, as they are read with weight zero
};

// Calls visit(block, columns) for each panel that the run is in, in order.
template <typename Visit>
void VisitPanels(const TokenRun& run, int64_t block_positions, const Visit& visit) {
  const int64_t end = run.start + run.count;
  for (int64_t p = run.start; p < end;) {
    const int64_t column = p % block_positions;
    const int64_t panel_end =
        std::min(column / kPanelPositions * kPanelPositions + kPanelPositions, block_positions);
    const int64_t count = std::min(panel_end - column, end - p);
    const int64_t written = column % kPanelPositions == 0 ? panel_end - column : count;
    visit(run.BlockOf(p, block_positions), Columns{column, count, written});
    p += count;
  }
}

template <typename Element>
Element* BlockElements(const PagedCache& cache, int64_t block) {
  return reinterpret_cast<Element*>(static_cast<std::byte*>(cache.elements) +
                                    block * cache.block_bytes());
}
uint16_t* BlockScales(const PagedCache& cache, int64_t block) {
  return reinterpret_cast<uint16_t*>(static_cast<std::byte*>(cache.elements) +
                                     block * cache.block_bytes() + cache.scales_offset());
}

// Sets element c of the row in a column of a block, in a format of integers.
void SetInteger(int8_t* block, int64_t c, int64_t column, int64_t block_positions, int64_t value) {
  block[c * block_positions + column] = static_cast<int8_t>(value);
}
void SetInteger(Int4Pair* block, int64_t c, int64_t column, int64_t block_positions,
                int64_t value) {
  const int64_t place = c * block_positions + Int4Place(column, block_positions);
  const int64_t shift = place % 2 * 4;
  uint8_t& bits = block[place / 2].bits;
  bits = static_cast<uint8_t>((bits & ~(15 << shift)) | (value & 15) << shift);
}

// Writes elements of some columns of a block.
template <typename Element>
void WriteNumbers(const float* rows, int64_t rows_stride, const Columns& columns,
                  ElementRange range, const PagedCache& cache, int64_t block) {
  const int64_t stride = cache.block_positions;
  Element* to = BlockElements<Element>(cache, block) + range.begin * stride + columns.first;
  for (int64_t c = range.begin; c < range.end; ++c, to += stride) {
    for (int64_t i = 0; i < columns.count; ++i) {
      to[i] = FromFloat<Element>(rows[i * rows_stride + c]);
    }
    for (int64_t i = columns.count; i < columns.written; ++i) to[i] = Element{0};
  }
}

// The scale of a group of numbers, rounded to bfloat16.
float ScaleOf(const float* numbers, int64_t count, float largest_integer) {
  float largest = 0;
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::abs(numbers[i]));
    finite = finite && std::isfinite(numbers[i]);
  }
  if (!finite) return NAN;
  return largest < 0x1p-100f ? 0 : FromBFloat16(ToBFloat16(largest / largest_integer));
}

// Copies elements begin to begin + count - 1 of a row as they are rounded, and returns the number
// of those that are halves of wide numbers, which come first.
int64_t CopyGroup(const float* row, int64_t begin, int64_t count, const PagedCache& cache,
                  float* group) {
  const int64_t halves = std::clamp<int64_t>(2 * cache.wide - begin, 0, count);
  for (int64_t c = 0; c < halves; ++c) {
    group[c] = row[cache.row_width - cache.wide + (begin + c) / 2];
  }
  if (halves < count) {
    std::copy_n(row + begin + halves - 2 * cache.wide, count - halves, group + halves);
    Hadamard(group + halves, count - halves, cache.rotation);
  }
  return halves;
}

// A number divided by its scale, in steps of 1 / steps, at most `most` of the scale; 0 if the scale
// is 0 or NaN.
int64_t RoundTo(float number, float inverse_scale, int64_t steps, float most) {
  if (!(inverse_scale > 0)) return 0;
  const auto factor = static_cast<float>(steps);
  const float rounded = std::nearbyint(number * inverse_scale * factor);
  return static_cast<int64_t>(std::clamp(rounded, -most * factor, most * factor));
}

// Writes elements of some columns of a block, rounded to integers.
template <typename Element>
void WriteIntegers(const float* rows, int64_t rows_stride, const Columns& columns,
                   ElementRange range, const PagedCache& cache, int64_t block) {
  constexpr float kMost = kLargestInteger<Element>;
  const int64_t stride = cache.block_positions;
  Element* const elements = BlockElements<Element>(cache, block);
  uint16_t* const scales = BlockScales(cache, block) + columns.first;
  for (int64_t begin = range.begin; begin < range.end; begin += kQuantizationGroup) {
    const int64_t count = std::min(kQuantizationGroup, range.end - begin);
    float group[kQuantizationGroup] = {};
    int64_t halves = 0;
    for (int64_t i = 0; i < columns.written; ++i) {
      const bool padding = i >= columns.count;
      if (!padding) halves = CopyGroup(rows + i * rows_stride, begin, count, cache, group);
      const float scale = padding ? 0 : ScaleOf(group, count, kMost);
      scales[begin / kQuantizationGroup * stride + i] = ToBFloat16(scale);
      const float inverse = scale > 0 ? 1 / scale : 0;
      const auto set = [&](int64_t c, int64_t value) {
        SetInteger(elements, begin + c, columns.first + i, stride, value);
      };
      for (int64_t c = 0; c < halves; c += 2) {
        const int64_t all = RoundTo(group[c], inverse, kWideSteps, kMost);
        const int64_t low = ((all + kWideSteps / 2) & (kWideSteps - 1)) - kWideSteps / 2;
        set(c, (all - low) / kWideSteps);
        set(c + 1, low);
      }
      for (int64_t c = halves; c < count; ++c) set(c, RoundTo(group[c], inverse, 1, kMost));
    }
  }
}

// The first inverse norm of a position.
std::byte* InverseNormAt(const PagedCache& cache, int64_t block, int64_t column) {
  return static_cast<std::byte*>(cache.elements) + block * cache.block_bytes() +
         cache.inverse_norms_offset() + column * static_cast<int64_t>(sizeof(float));
}

//   norms: [tokens, inverse_norms], stride numbers from one token to the next
void WriteInverseNorms(const float* norms, int64_t stride, std::span<const TokenRun> runs,
                       const PagedCache& cache) {
  constexpr float kUnused = 0;
  for (const TokenRun& run : runs) {
    VisitPanels(run, cache.block_positions, [&](int64_t block, const Columns& columns) {
      for (int64_t n = 0; n < cache.inverse_norms; ++n) {
        std::byte* const to =
            InverseNormAt(cache, block, columns.first + n * cache.block_positions);
        for (int64_t i = 0; i < columns.written; ++i) {
          const float* const from = i < columns.count ? norms + i * stride + n : &kUnused;
          std::memcpy(to + i * sizeof(float), from, sizeof(float));
        }
      }
      norms += columns.count * stride;
    });
  }
}

template <typename Element>
void ReadColumns(const PagedCache& cache, int64_t block, const Columns& columns, float* rows) {
  const int64_t stride = cache.block_positions, width = cache.row_width;
  const Element* const from = BlockElements<Element>(cache, block);
  [[maybe_unused]] const uint16_t* scales = nullptr;
  if constexpr (kHasScale<Element>) scales = BlockScales(cache, block) + columns.first;
  const auto element = [&](int64_t e, int64_t i) {
    if constexpr (kHasScale<Element>) {
      return static_cast<float>(IntegerAt(from, e, columns.first + i, stride)) *
             FromBFloat16(scales[e / kQuantizationGroup * stride + i]);
    } else {
      return ToFloat(from[e * stride + columns.first + i]);
    }
  };
  const int64_t others = width - cache.wide;  // come after the wide numbers
  for (int64_t c = 0; c < others; ++c) {
    for (int64_t i = 0; i < columns.count; ++i) {
      rows[i * width + c] = element(2 * cache.wide + c, i);
    }
  }
  for (int64_t c = 0; c < cache.wide; ++c) {
    for (int64_t i = 0; i < columns.count; ++i) {
      rows[i * width + others + c] =
          element(2 * c, i) + element(2 * c + 1, i) / static_cast<float>(kWideSteps);
    }
  }
  if (cache.rotation == 1) return;
  const float inverse = 1 / static_cast<float>(cache.rotation);
  for (int64_t i = 0; i < columns.count; ++i) {
    float* const rotated = rows + i * width;
    Hadamard(rotated, others, cache.rotation);
    for (int64_t c = 0; c < others; ++c) rotated[c] *= inverse;
  }
}

}  // namespace

void WritePagedRows(const float* rows, int64_t rows_stride, std::span<const TokenRun> runs,
                    const PagedCache& cache, KernelContext& context) {
  int64_t tokens = 0;
  for (const TokenRun& run : runs) tokens += run.count;
  VisitElements(cache.format, cache.elements, [&]<typename Element>(Element*) {
    // A task writes some elements of every row.
    const int64_t elements = cache.stored_elements(), units = CeilDiv(elements, kUnit<Element>);
    const int64_t tasks = std::min(units, context.pool.TaskCount(tokens * elements * kElementWork));
    context.pool.Run(tasks, [&](int64_t task) {
      const auto begin_of = [&](int64_t i) {
        return std::min(units * i / tasks * kUnit<Element>, elements);
      };
      const ElementRange range{begin_of(task), begin_of(task + 1)};
      const float* from = rows;
      for (const TokenRun& run : runs) {
        VisitPanels(run, cache.block_positions, [&](int64_t block, const Columns& columns) {
          if constexpr (kHasScale<Element>) {
            WriteIntegers<Element>(from, rows_stride, columns, range, cache, block);
          } else {
            WriteNumbers<Element>(from, rows_stride, columns, range, cache, block);
          }
          from += columns.count * rows_stride;
        });
      }
    });
  });
  if (cache.inverse_norms > 0) {
    WriteInverseNorms(rows + cache.row_width, rows_stride, runs, cache);
  }
}

void ReadPagedRows(const PagedCache& cache, const TokenRun& run, float* rows) {
  VisitElements(cache.format, cache.elements, [&]<typename Element>(Element*) {
    VisitPanels(run, cache.block_positions, [&](int64_t block, const Columns& columns) {
      ReadColumns<Element>(cache, block, columns, rows);
      rows += columns.count * cache.row_width;
    });
  });
}

void ReadInverseNorms(const PagedCache& cache, const TokenRun& run, float* norms,
                      int64_t norms_stride) {
  if (cache.inverse_norms == 0) return;
  VisitPanels(run, cache.block_positions, [&](int64_t block, const Columns& columns) {
    for (int64_t n = 0; n < cache.inverse_norms; ++n) {
      std::memcpy(norms + n * norms_stride,
                  InverseNormAt(cache, block, columns.first + n * cache.block_positions),
                  columns.count * sizeof(float));
    }
    norms += columns.count;
  });
}

}  // namespace triptych::kernels
