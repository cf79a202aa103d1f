// A cache whose contents do not matter, only their size.
#ifndef TRIPTYCH_TESTS_BENCH_RANDOM_CACHE_H_
#define TRIPTYCH_TESTS_BENCH_RANDOM_CACHE_H_

#include <algorithm>
#include <cstdint>
#include <random>

#include "engine/kernels/elements.h"
#include "engine/kernels/paged_rows.h"

namespace triptych {

// Fills blocks 0 to blocks - 1 with standard normal numbers, the same in every block.
inline void FillRandom(const PagedCache& cache, int64_t blocks) {
  const int64_t size = cache.row_width * cache.block_positions;
  VisitElements(cache.format, cache.elements, [&]<typename Element>(Element* elements) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    std::generate_n(elements, size, [&] { return FromFloat<Element>(normal(generator)); });
    for (int64_t i = 1; i < blocks; ++i) std::copy_n(elements, size, elements + i * size);
  });
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_BENCH_RANDOM_CACHE_H_
