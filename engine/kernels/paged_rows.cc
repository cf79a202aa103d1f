#include "engine/kernels/paged_rows.h"

#include <algorithm>

#include "engine/kernels/elements.h"

namespace triptych {
namespace {

// Writing one element costs about as much as this many multiply-adds.
constexpr int64_t kElementWork = 32;

// Elements begin to end - 1 of every row.
struct ElementRange {
  int64_t begin;
  int64_t end;
};

// Writes a run's rows, of which these elements.
template <typename Element>
void WriteRun(const float* rows, int64_t rows_stride, const TokenRun& run, ElementRange range,
              const PagedCache& cache, Element* elements) {
  const int64_t block_positions = cache.block_positions;
  const int64_t last = run.start + run.count - 1;
  for (int64_t p = run.start; p <= last;) {
    // The rest of a panel, or of what is new of it. What its later positions will overwrite is read
    // until then, with weight zero.
    const int64_t column = p % block_positions;
    const int64_t panel_end =
        std::min(column / kPanelPositions * kPanelPositions + kPanelPositions, block_positions);
    const int64_t count = std::min(panel_end - column, last + 1 - p);
    const int64_t written = column % kPanelPositions == 0 ? panel_end - column : count;
    const int64_t block = run.blocks[p / block_positions];
    Element* to = elements + (block * cache.row_width + range.begin) * block_positions + column;
    for (int64_t c = range.begin; c < range.end; ++c, to += block_positions) {
      for (int64_t i = 0; i < count; ++i) to[i] = FromFloat<Element>(rows[i * rows_stride + c]);
      for (int64_t i = count; i < written; ++i) to[i] = Element{0};
    }
    rows += count * rows_stride;
    p += count;
  }
}

}  // namespace

void WritePagedRows(const float* rows, int64_t rows_stride, std::span<const TokenRun> runs,
                    const PagedCache& cache, KernelContext& context) {
  int64_t tokens = 0;
  for (const TokenRun& run : runs) tokens += run.count;
  // A task writes some elements of every row.
  const int64_t tasks =
      std::min(cache.row_width, context.pool.TaskCount(tokens * cache.row_width * kElementWork));
  VisitElements(cache.format, cache.elements, [&](auto* elements) {
    context.pool.Run(tasks, [&](int64_t task) {
      const ElementRange range{cache.row_width * task / tasks,
                               cache.row_width * (task + 1) / tasks};
      const float* from = rows;
      for (const TokenRun& run : runs) {
        WriteRun(from, rows_stride, run, range, cache, elements);
        from += run.count * rows_stride;
      }
    });
  });
}

void ReadPagedRows(const PagedCache& cache, const TokenRun& run, float* rows) {
  const int64_t block_positions = cache.block_positions, row_width = cache.row_width;
  const int64_t end = run.start + run.count;
  VisitElements(cache.format, cache.elements, [&](const auto* elements) {
    for (int64_t p = run.start; p < end;) {
      const int64_t column = p % block_positions;
      const int64_t count = std::min(block_positions - column, end - p);
      const int64_t block = run.blocks[p / block_positions];
      const auto* from = elements + block * row_width * block_positions + column;
      for (int64_t c = 0; c < row_width; ++c, from += block_positions) {
        for (int64_t i = 0; i < count; ++i) rows[i * row_width + c] = ToFloat(from[i]);
      }
      rows += count * row_width;
      p += count;
    }
  });
}

}  // namespace triptych
