#include "engine/kv_cache/storage.h"

#include "engine/kernels/large_pages.h"

namespace triptych {

KvCacheStorage::KvCacheStorage(int64_t blocks, int64_t block_positions,
                               const std::vector<int64_t>& row_elements,
                               const at::TensorOptions& options) {
  for (const int64_t width : row_elements) {
    layers_.push_back(at::empty({blocks, width, block_positions}, options));
    at::Tensor& layer = layers_.back();
    if (layer.is_cpu()) AdviseLargePages(layer.data_ptr(), layer.nbytes());
  }
}

int64_t KvCacheStorage::bytes() const {
  int64_t bytes = 0;
  for (const at::Tensor& layer : layers_) bytes += static_cast<int64_t>(layer.storage().nbytes());
  return bytes;
}

}  // namespace triptych
