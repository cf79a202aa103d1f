// KV cache filled with random numbers, for benchmarks in which only its size matters.
#ifndef TRIPTYCH_TESTS_BENCH_RANDOM_CACHE_H_
#define TRIPTYCH_TESTS_BENCH_RANDOM_CACHE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "engine/kernels/context.h"
#include "engine/kernels/paged_rows.h"

namespace triptych {

// Fills blocks 0 to blocks - 1 with standard normal numbers, the same in every block.
inline void FillRandom(const kernels::PagedCache& cache, int64_t blocks) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> rows(cache.block_positions * cache.row_width);
  for (float& value : rows) value = normal(generator);
  const int32_t first = 0;
  const kernels::TokenRun run{&first, 0, cache.block_positions};
  kernels::KernelContext context(1);
  kernels::WritePagedRows(rows.data(), cache.row_width, {&run, 1}, cache, context);
  auto* const bytes = static_cast<std::byte*>(cache.elements);
  for (int64_t i = 1; i < blocks; ++i) {
    std::copy_n(bytes, cache.block_bytes(), bytes + i * cache.block_bytes());
  }
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_BENCH_RANDOM_CACHE_H_
