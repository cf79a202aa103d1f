// Row layouts of grouped and of latent attention in the KV cache.
#ifndef TRIPTYCH_ENGINE_KERNELS_ROW_LAYOUT_H_
#define TRIPTYCH_ENGINE_KERNELS_ROW_LAYOUT_H_

#include <cstdint>

#include "engine/kernels/paged_attention.h"

namespace triptych::kernels {

// MHA, GQA and MQA: the keys of all groups, then their values.
constexpr PagedRowLayout GroupedRowLayout(int64_t heads, int64_t groups, int64_t d_qk,
                                          int64_t d_v) {
  return {.heads = heads,
          .groups = groups,
          .key_width = d_qk,
          .value_offset = groups * d_qk,
          .value_width = d_v};
}

// Reduced MLA: a latent, which is the key and the value of every head, then the decoupled key.
constexpr PagedRowLayout LatentRowLayout(int64_t heads, int64_t rank, int64_t d_rope) {
  return {.heads = heads,
          .groups = 1,
          .key_width = rank + d_rope,
          .value_offset = 0,
          .value_width = rank};
}

}  // namespace triptych::kernels

#endif  // TRIPTYCH_ENGINE_KERNELS_ROW_LAYOUT_H_
