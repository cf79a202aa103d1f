// Linear layers with packed weights: the matrix products of serving.
#ifndef TRIPTYCH_ENGINE_KERNELS_PACKED_LINEAR_H_
#define TRIPTYCH_ENGINE_KERNELS_PACKED_LINEAR_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/formats.h"
#include "engine/kernels/context.h"
#include "engine/kernels/large_pages.h"

namespace triptych::kernels {

struct ProductKernel;

// y = W x + b in `groups` independent blocks: outputs of group g read inputs of group g only. One
// group is a linear layer; one group per head is a product per head.
//
// Every output is one sum over its inputs in a fixed order, whatever the number of rows and of
// threads: on one machine a row's result has the same bits in every batch. Sums are float32.
// With bfloat16 weights, inputs are rounded to bfloat16 too (ties to even), and products are exact.
// With int8 and int4 weights, each group of 32 inputs of a row is rounded to 8 bits: its largest
// magnitude is 127 steps (a largest magnitude of 2^-110 or less counts as zero). Sums within such a
// group are exact.
//
// Owns a copy of the weights. Immutable once packed, and therefore thread-safe.
class PackedLinear {
 public:
  // `outputs` and `inputs` are those of one group.
  struct Shape {
    int64_t groups = 1;
    int64_t outputs = 0;
    int64_t inputs = 0;
  };

  // Consecutive outputs, of all groups, that are stored together.
  struct Rows {
    TensorFormat stored;
    const void* weight;  // [outputs, inputs], finite
    const float* bias;   // [outputs], or null
    int64_t outputs;
  };

  // A layer without outputs, which must not be applied.
  PackedLinear() = default;
  // Packs the stored weights, rounded to the format, on the threads of `pool`.
  //   rows: in order, groups * outputs outputs in all
  PackedLinear(const Shape& shape, WeightFormat format, const std::vector<Rows>& rows,
               ThreadPool& pool);

  // A layer whose groups are packed by PackGroup, each before it is applied.
  PackedLinear(const Shape& shape, WeightFormat format);
  // Packs one group as the constructor does.
  //   rows: in order, `outputs` outputs in all
  void PackGroup(int64_t group, const std::vector<Rows>& rows, ThreadPool& pool);

  const Shape& shape() const { return shape_; }
  WeightFormat format() const { return format_; }
  int64_t bytes() const;  // of the packed weights and biases

  //   x: [rows, groups, inputs]   y: [rows, groups, outputs], not overlapping x
  void Apply(const float* x, int64_t rows, float* y, KernelContext& context) const;

  // Elements from one row, and from one group, to the next.
  struct Strides {
    int64_t row;
    int64_t group;
  };
  // Applies the layer to an x and a y that are parts of wider arrays.
  void Apply(const float* x, const Strides& x_strides, int64_t rows, float* y,
             const Strides& y_strides, KernelContext& context) const;

  // Applies one group only, with the same bits as Apply.
  //   x: [rows, inputs], x_stride elements from one row to the next
  //   y: [rows, outputs], y_stride elements from one row to the next, not overlapping x
  void ApplyGroup(int64_t group, const float* x, int64_t x_stride, int64_t rows, float* y,
                  int64_t y_stride, KernelContext& context) const;

  // The rows of a y that one group gives: `rows` of them from `first` on.
  struct RoutedRows {
    int64_t group;
    int64_t first;
    int64_t rows;
  };
  // Applies groups to rows of their own, with the same bits as Apply. Row i of y is the product of
  // row from[i] of x with the group that `parts` has it in.
  //   parts: of rows in order, each with at least one row   x: [..., inputs]
  //   from: [rows of y]   y: [rows, outputs], not overlapping x
  void ApplyRouted(std::span<const RoutedRows> parts, const int64_t* from, const float* x, float* y,
                   KernelContext& context) const;

  // Copies the weights of output outputs[i] to row i of y, in float32: the embedding lookup in a
  // tied output matrix. REQUIRES: one group.
  //   y: [rows, inputs]
  void CopyWeights(const int64_t* outputs, int64_t rows, float* y, KernelContext& context) const;

 private:
  // Consecutive groups.
  struct Groups {
    int64_t first;
    int64_t count;
  };

  void PackGroups(const Groups& groups, const std::vector<Rows>& rows, ThreadPool& pool);
  // Applies these groups; x and y point at the first one.
  void ApplyGroups(const Groups& groups, const float* x, const Strides& x_strides, int64_t rows,
                   float* y, const Strides& y_strides, KernelContext& context) const;
  // Multiplies prepared inputs, in 32-bit words.
  //   x: [rows, groups, units of words]
  void Multiply(const Groups& groups, const std::byte* x, const Strides& x_strides, int64_t rows,
                float* y, const Strides& y_strides, KernelContext& context) const;

  // Prepared rows of one group, and where their outputs go.
  struct GroupRows {
    const std::byte* x;
    float* y;
    int64_t x_stride;  // in 32-bit words
    int64_t y_stride;
    int64_t rows;
    bool prefetch;
  };
  // Multiplies rows by panels `first` to `end` - 1 of a group.
  void MultiplyPanels(const ProductKernel& kernel, int64_t group, int64_t first, int64_t end,
                      const GroupRows& rows) const;

  int64_t panels() const;  // of a group
  int64_t units() const;   // of a panel
  int64_t panel_bytes() const;
  const float* biases() const;  // [groups][panels, 32]

  Shape shape_;
  WeightFormat format_ = WeightFormat::kFloat32;
  // [groups][panels][units] of packed_format.h, then the bias [groups][panels, 32].
  LargePages packed_;
};

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_PACKED_LINEAR_H_
