#include "engine/kernels/packed_linear.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "engine/base/ceil_div.h"
#include "engine/kernels/elements.h"
#include "engine/kernels/packed_format.h"
#include "engine/kernels/packed_product.h"

namespace triptych::kernels {
namespace {

// Rows per task at which the cost of reading weights is small.
constexpr int64_t kTaskRows = 48;
// Smallest layers, in bytes, whose weights are prefetched. A model's layers have left a core's
// private caches by the next step, so prefetching pays if several rows read them. A single row
// reads weights faster, and those of small layers arrive as soon without it.
constexpr int64_t kPrefetchBytes = int64_t{1} << 16;
constexpr int64_t kPrefetchBytesForOneRow = int64_t{1} << 20;
// Rows whose products take about as long as reading a group's weights from memory.
constexpr int64_t kRowsOfBytes = 8;
// Approximate cost of copying one weight, in multiply-adds; packing costs at least as much.
constexpr int64_t kCopyWork = 16;

ProductKernel KernelFor(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat32:
      return Float32Product();
    case WeightFormat::kBFloat16:
      return BFloat16Product();
    case WeightFormat::kInt8:
      return Int8Product();
    case WeightFormat::kInt4:
      return Int4Product();
  }
  __builtin_unreachable();
}

// Prepares a row's inputs, or copies them if the kernel reads them unchanged.
void PrepareRow(const ProductKernel& kernel, const float* x, int64_t inputs, std::byte* to) {
  if (kernel.prepare) {
    kernel.prepare(x, inputs, to);
  } else {
    std::memcpy(to, x, inputs * kWordBytes);
  }
}

// Runs all tasks on this thread if a TaskCount `wanted` only one.
template <typename Task>
void RunTasks(int64_t wanted, int64_t tasks, ThreadPool& pool, const Task& task) {
  if (wanted == 1) {
    for (int64_t i = 0; i < tasks; ++i) task(i);
  } else {
    pool.Run(tasks, task);
  }
}

// Division of a product into tasks: each has a part of a group's panels and a part of the rows.
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

  // One row reads four panels at a time: parts have multiples of four, if there are enough panels.
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

PackedLinear::PackedLinear(const Shape& shape, WeightFormat format)
    : shape_(shape), format_(format), packed_(bytes()) {}

PackedLinear::PackedLinear(const Shape& shape, WeightFormat format, const std::vector<Rows>& rows,
                           ThreadPool& pool)
    : PackedLinear(shape, format) {
  PackGroups({0, shape.groups}, rows, pool);
}

void PackedLinear::PackGroup(int64_t group, const std::vector<Rows>& rows, ThreadPool& pool) {
  PackGroups({group, 1}, rows, pool);
}

void PackedLinear::PackGroups(const Groups& groups, const std::vector<Rows>& rows,
                              ThreadPool& pool) {
  const PackedFormat packed = Packed(format_);
  const int64_t panels = this->panels(), inputs = shape_.inputs, outputs = shape_.outputs;
  const int64_t first = groups.first * panels, packed_panels = groups.count * panels;
  auto* const packed_bias =
      reinterpret_cast<float*>(packed_.data() + shape_.groups * panels * panel_bytes());
  pool.ForEach(packed_panels, packed_panels * kPanel * inputs * kCopyWork, [&](int64_t i) {
    const int64_t panel = first + i, begin = panel % panels * kPanel;
    const int64_t end = std::min(begin + kPanel, outputs);
    std::vector<float> row(inputs);
    for (int64_t n = begin; n < end; ++n) {
      const Rows* together = rows.data();
      int64_t output = i / panels * outputs + n;  // index in `together`
      for (; output >= together->outputs; ++together) output -= together->outputs;
      VisitElements(together->stored, together->weight, [&](const auto* elements) {
        std::transform(elements + output * inputs, elements + (output + 1) * inputs, row.begin(),
                       [](auto element) { return ToFloat(element); });
      });
      std::byte* unit = packed_.data() + panel * panel_bytes();
      for (int64_t k = 0; k < inputs; k += packed.inputs, unit += packed.panel_bytes()) {
        const auto count = static_cast<size_t>(std::min(packed.inputs, inputs - k));
        PackUnit(format_, {row.data() + k, count}, n - begin, unit);
      }
      if (together->bias != nullptr) {
        packed_bias[panel * kPanel + n - begin] = together->bias[output];
      }
    }
  });
}

int64_t PackedLinear::bytes() const {
  return PackedBytes(format_, shape_.groups, shape_.outputs, shape_.inputs);
}

int64_t PackedLinear::panels() const { return CeilDiv(shape_.outputs, kPanel); }

int64_t PackedLinear::units() const { return CeilDiv(shape_.inputs, Packed(format_).inputs); }

int64_t PackedLinear::panel_bytes() const { return units() * Packed(format_).panel_bytes(); }

const float* PackedLinear::biases() const {
  return reinterpret_cast<const float*>(packed_.data() + shape_.groups * panels() * panel_bytes());
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
  const ProductKernel kernel = KernelFor(format_);
  const int64_t inputs = shape_.inputs, words = units() * kernel.unit_words;  // of a group's row
  const int64_t width = groups.count * words;
  // Rows a multiple of 4 KiB apart would all map to the same few cache sets.
  const bool apart = rows > 2 && (kernel.prepare ? width : x_strides.row) % 1024 == 0;
  if (!kernel.prepare && !apart) {
    return Multiply(groups, reinterpret_cast<const std::byte*>(x), x_strides, rows, y, y_strides,
                    context);
  }
  const Strides strides{width + (apart ? 16 : 0), words};
  const Workspace::Scope scope(context.workspace);
  // [rows, groups, words]
  auto* const copy = context.workspace.Take<std::byte>(rows * strides.row * kWordBytes);
  context.pool.ForEach(rows, rows * groups.count * inputs, [&](int64_t row) {
    for (int64_t group = 0; group < groups.count; ++group) {
      PrepareRow(kernel, x + row * x_strides.row + group * x_strides.group, inputs,
                 copy + (row * strides.row + group * strides.group) * kWordBytes);
    }
  });
  Multiply(groups, copy, strides, rows, y, y_strides, context);
}

void PackedLinear::Multiply(const Groups& groups, const std::byte* x, const Strides& x_strides,
                            int64_t rows, float* y, const Strides& y_strides,
                            KernelContext& context) const {
  const ProductKernel kernel = KernelFor(format_);
  const int64_t panels = this->panels();
  const bool prefetch = groups.count * panels * panel_bytes() >=
                        (rows == 1 ? kPrefetchBytesForOneRow : kPrefetchBytes);
  const int64_t wanted =
      context.pool.TaskCount(rows * groups.count * panels * kPanel * shape_.inputs);
  const Cut cut(wanted, groups.count, panels, rows);
  const auto run = [&](int64_t task) {
    const int64_t group = cut.group(task), row = cut.first_row(task);
    MultiplyPanels(kernel, groups.first + group, cut.first_panel(task), cut.panel_end(task),
                   {.x = x + (row * x_strides.row + group * x_strides.group) * kWordBytes,
                    .y = y + row * y_strides.row + group * y_strides.group,
                    .x_stride = x_strides.row,
                    .y_stride = y_strides.row,
                    .rows = cut.row_end(task) - row,
                    .prefetch = prefetch});
  };
  RunTasks(wanted, groups.count * cut.panel_parts * cut.row_parts, context.pool, run);
}

void PackedLinear::MultiplyPanels(const ProductKernel& kernel, int64_t group, int64_t first,
                                  int64_t end, const GroupRows& rows) const {
  const int64_t packed_panel = group * panels() + first;
  kernel.multiply({.x = rows.x,
                   .weights = packed_.data() + packed_panel * panel_bytes(),
                   .bias = biases() + packed_panel * kPanel,
                   .y = rows.y + first * kPanel,
                   .x_stride = rows.x_stride,
                   .y_stride = rows.y_stride,
                   .rows = rows.rows,
                   .units = units(),
                   .outputs = std::min(shape_.outputs, end * kPanel) - first * kPanel,
                   .prefetch = rows.prefetch});
}

void PackedLinear::ApplyRouted(std::span<const RoutedRows> parts, const int64_t* from,
                               const float* x, float* y, KernelContext& context) const {
  if (parts.empty()) return;
  const ProductKernel kernel = KernelFor(format_);
  const int64_t panels = this->panels();
  const int64_t inputs = shape_.inputs, rows = parts.back().first + parts.back().rows;
  const int64_t words = units() * kernel.unit_words;
  // Rows a multiple of 4 KiB apart would all map to the same few cache sets.
  const int64_t stride = words + (words % 1024 == 0 ? 16 : 0);
  const Workspace::Scope scope(context.workspace);
  auto* const prepared = context.workspace.Take<std::byte>(rows * stride * kWordBytes);
  context.pool.ForEach(rows, rows * inputs, [&](int64_t row) {
    PrepareRow(kernel, x + from[row] * inputs, inputs, prepared + row * stride * kWordBytes);
  });

  const int64_t wanted = context.pool.TaskCount(rows * panels * kPanel * inputs);
  const bool prefetch = std::ssize(parts) * panels * panel_bytes() >= kPrefetchBytes;
  // A part costs its weights' bytes and its rows' products.
  const auto cost = [](const RoutedRows& part) { return kRowsOfBytes + part.rows; };
  int64_t all = 0;
  for (const RoutedRows& part : parts) all += cost(part);
  // The first task of each part.
  auto* const cuts = context.workspace.Take<int64_t>(std::ssize(parts) + 1);
  cuts[0] = 0;
  for (int64_t p = 0; p < std::ssize(parts); ++p) {
    const int64_t pieces = CeilDiv(wanted * cost(parts[p]), all);
    cuts[p + 1] = cuts[p] + std::clamp<int64_t>(pieces, 1, CeilDiv(panels, int64_t{4}));
  }
  const int64_t tasks = cuts[std::ssize(parts)];
  const auto run = [&](int64_t task) {
    const int64_t p = std::upper_bound(cuts, cuts + parts.size(), task) - cuts - 1;
    const RoutedRows& part = parts[p];
    const Cut cut(cuts[p + 1] - cuts[p], /*groups=*/1, panels, /*rows=*/1);
    const int64_t piece = task - cuts[p];
    MultiplyPanels(kernel, part.group, cut.first_panel(piece), cut.panel_end(piece),
                   {.x = prepared + part.first * stride * kWordBytes,
                    .y = y + part.first * shape_.outputs,
                    .x_stride = stride,
                    .y_stride = shape_.outputs,
                    .rows = part.rows,
                    .prefetch = prefetch});
  };
  RunTasks(wanted, tasks, context.pool, run);
}

void PackedLinear::CopyWeights(const int64_t* outputs, int64_t rows, float* y,
                               KernelContext& context) const {
  const PackedFormat packed = Packed(format_);
  const int64_t inputs = shape_.inputs;
  context.pool.ForEach(rows, rows * inputs * kCopyWork, [&](int64_t row) {
    const std::byte* unit = packed_.data() + outputs[row] / kPanel * panel_bytes();
    for (int64_t k = 0; k < inputs; k += packed.inputs, unit += packed.panel_bytes()) {
      const auto count = static_cast<size_t>(std::min(packed.inputs, inputs - k));
      UnpackUnit(format_, unit, outputs[row] % kPanel, {y + row * inputs + k, count});
    }
  });
}

}  // namespace triptych::kernels
