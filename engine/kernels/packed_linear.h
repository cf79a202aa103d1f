// The matrix products of serving: linear layers whose weights are rearranged once.
#ifndef TRIPTYCH_ENGINE_KERNELS_PACKED_LINEAR_H_
#define TRIPTYCH_ENGINE_KERNELS_PACKED_LINEAR_H_

#include <cstdint>

#include "engine/kernels/large_pages.h"
#include "engine/kernels/thread_pool.h"

namespace triptych {

// y = W x + b in `groups` independent blocks: outputs of group g read inputs of group g only. One
// group is a linear layer; one group for each head is a product per head.
//
// Every output is one sum over its inputs in a fixed order, whatever the number of rows and of
// threads: on one machine a row's result is the same bits in every batch. Sums are float32.
// Under bfloat16 weights, inputs are rounded to bfloat16 too (ties to even), and products are
// exact.
//
// Holds a copy of the weights. Immutable: safe to use from several threads.
class PackedLinear {
 public:
  // Of one group.
  struct Shape {
    int64_t groups = 1;
    int64_t outputs = 0;
    int64_t inputs = 0;
  };

  // Of shape {0, 0, 0}; not to be applied.
  PackedLinear() = default;
  //   weight: [groups, outputs, inputs] float32, or bfloat16 as its bits
  //   bias: [groups, outputs], or null
  PackedLinear(const Shape& shape, const float* weight, const float* bias);
  PackedLinear(const Shape& shape, const uint16_t* weight, const float* bias);

  const Shape& shape() const { return shape_; }

  //   x: [rows, groups, inputs]   y: [rows, groups, outputs], not overlapping x
  void Apply(const float* x, int64_t rows, float* y, ThreadPool& pool) const;

  // Elements from one row, and from one group, to the next.
  struct Strides {
    int64_t row;
    int64_t group;
  };
  // The same, of x and y that are parts of something wider.
  void Apply(const float* x, Strides x_strides, int64_t rows, float* y, const Strides& y_strides,
             ThreadPool& pool) const;

 private:
  template <typename Element>
  void Pack(const Element* weight, const float* bias);

  Shape shape_;
  bool bfloat16_ = false;
  // Panels of 32 outputs, each [inputs, 32] or, in bfloat16, [inputs / 2, 32, 2]; past the last
  // output, and past an odd last input of bfloat16, zeros. Then the bias, [panels, 32].
  LargePages packed_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_KERNELS_PACKED_LINEAR_H_
