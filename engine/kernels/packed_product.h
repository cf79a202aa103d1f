// The products inside of a linear layer: some rows times some panels of one group, by one thread.
#ifndef TRIPTYCH_ENGINE_KERNELS_PACKED_PRODUCT_H_
#define TRIPTYCH_ENGINE_KERNELS_PACKED_PRODUCT_H_

#include <cstddef>
#include <cstdint>

namespace triptych::kernels {

// What the last rows of a product fetch meanwhile, each an equal part of it.
struct Next {
  int64_t rows = 0;  // that fetch
  const std::byte* weights = nullptr;
  int64_t panels = 0;
  int64_t bytes = 0;   // of each panel
  int64_t stride = 0;  // between panels
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
  bool prefetch;    // whether weights come from memory, and are fetched ahead
  // The first of the panels' units that is there: `weights` may be a part of each.
  int64_t first_unit = 0;
  Next next = {};
};

// How weights of a format are multiplied.
struct ProductKernel {
  void (*multiply)(const Product& product);
  // Puts a row's inputs as `multiply` reads them; null if it reads them as they are.
  //   x: [inputs]   words: [units][unit_words]
  void (*prepare)(const float* x, int64_t inputs, std::byte* words);
  int64_t unit_words;  // 32-bit words of x for a unit of weights
};

// Each by the best instructions of this machine. Safe to call from several threads.
ProductKernel Float32Product();
ProductKernel BFloat16Product();
ProductKernel Int8Product();
ProductKernel Int4Product();

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_PACKED_PRODUCT_H_
