// A cache whose contents do not matter, only their size.
#ifndef TRIPTYCH_TESTS_BENCH_RANDOM_CACHE_H_
#define TRIPTYCH_TESTS_BENCH_RANDOM_CACHE_H_

#include <ATen/ATen.h>

#include "engine/kv_cache/storage.h"

namespace triptych {

// Standard normal numbers, the same in every block of a layer.
inline void FillRandom(KvCacheStorage& cache) {
  for (int64_t i = 0; i < cache.layers(); ++i) {
    cache.layer(i).copy_(at::randn(cache.layer(i)[0].sizes()));
  }
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_BENCH_RANDOM_CACHE_H_
