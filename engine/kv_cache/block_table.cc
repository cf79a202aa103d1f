#include "engine/kv_cache/block_table.h"

#include <algorithm>

#include "engine/base/ceil_div.h"

namespace triptych {

bool BlockTable::Grow(int64_t positions) {
  const int64_t missing = CeilDiv(positions, block_positions_) - size();
  if (missing > 0 && !pool_->Allocate(missing, blocks_)) return false;
  peak_size_ = std::max(peak_size_, size());
  return true;
}

void BlockTable::Share(int32_t block) {
  pool_->AddReference(block);
  blocks_.push_back(block);
  peak_size_ = std::max(peak_size_, size());
}

void BlockTable::Replace(int64_t index, int32_t block) {
  pool_->AddReference(block);
  pool_->Release({&blocks_[index], 1});
  blocks_[index] = block;
}

void BlockTable::Release() {
  pool_->Release(blocks_);
  blocks_.clear();
}

int64_t BlockTable::shared() const {
  const auto unshared = std::partition_point(blocks_.begin(), blocks_.end(), [this](int32_t block) {
    return pool_->ref_count(block) > 1;
  });
  return unshared - blocks_.begin();
}

}  // namespace triptych
