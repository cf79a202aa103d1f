// Products within a linear layer: rows times panels of one group, on one thread.
#ifndef TRIPTYCH_ENGINE_KERNELS_PACKED_PRODUCT_H_
#define TRIPTYCH_ENGINE_KERNELS_PACKED_PRODUCT_H_

#include <cstddef>
#include <cstdint>

namespace triptych::kernels {

// Prefetch plan of the next product, divided evenly among the last rows of this one.
struct Next {
  int64_t rows = 0;  // that prefetch
  const std::byte* weights = nullptr;
  int64_t panels = 0;
  int64_t bytes = 0;   // of each panel
  int64_t stride = 0;  // bytes between panels
};

// Rows of x against consecutive panels of one group.
struct Product {
  const std::byte* x;        // [rows][x_stride], as ProductKernel::prepare leaves them
  const std::byte* weights;  // [panels][units] of packed_format.h
  const float* bias;         // [panels][kPanel]
  float* y;                  // [rows][y_stride]
  int64_t x_stride;          // in 32-bit words
  int64_t y_stride;
  int64_t rows;
  int64_t units;    // of a panel
  int64_t outputs;  // of all the panels; the last one may be partial
  bool prefetch;    // whether weights come from memory and are prefetched
  // The first unit of the panels that `weights` holds; it may hold a part of each.
  int64_t first_unit = 0;
  Next next = {};
};

// The kernel of a weight format.
struct ProductKernel {
  void (*multiply)(const Product& product);
  // Prepares a row's inputs for `multiply`; null if it reads them unchanged.
  //   x: [inputs]   words: [units][unit_words]
  void (*prepare)(const float* x, int64_t inputs, std::byte* words);
  int64_t unit_words;  // 32-bit words of x for a unit of weights
};

// The kernel of each format, with this machine's best instructions. Thread-safe.
ProductKernel Float32Product();
ProductKernel BFloat16Product();
ProductKernel Int8Product();
ProductKernel Int4Product();

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_PACKED_PRODUCT_H_
