#include "engine/kv_cache/storage.h"

namespace triptych {

KvCacheStorage::KvCacheStorage(int64_t blocks, int64_t block_positions,
                               const std::vector<int64_t>& row_elements,
                               const at::TensorOptions& options) {
  for (const int64_t width : row_elements) {
    layers_.push_back(at::empty({blocks, block_positions, width}, options));
  }
}

int64_t KvCacheStorage::bytes() const {
  int64_t bytes = 0;
  for (const at::Tensor& layer : layers_) bytes += static_cast<int64_t>(layer.storage().nbytes());
  return bytes;
}

}  // namespace triptych
