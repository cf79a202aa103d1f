// The memory of a paged cache.
#ifndef TRIPTYCH_ENGINE_KV_CACHE_STORAGE_H_
#define TRIPTYCH_ENGINE_KV_CACHE_STORAGE_H_

#include <ATen/ATen.h>

#include <vector>

namespace triptych {

// One tensor of opaque rows for each layer. Only the attention that wrote a row interprets it.
class KvCacheStorage {
 public:
  // `row_elements` of each layer; `options` say which dtype and device.
  KvCacheStorage(int64_t blocks, int64_t block_positions, const std::vector<int64_t>& row_elements,
                 const at::TensorOptions& options);

  // [blocks, row_elements, block_positions]
  at::Tensor& layer(int64_t index) { return layers_.at(index); }
  int64_t layers() const { return static_cast<int64_t>(layers_.size()); }
  // Bytes really allocated.
  int64_t bytes() const;

 private:
  std::vector<at::Tensor> layers_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_KV_CACHE_STORAGE_H_
