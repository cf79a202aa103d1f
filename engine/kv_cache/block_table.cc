#include "engine/kv_cache/block_table.h"

#include <algorithm>

#include "engine/base/ceil_div.h"

namespace triptych {

bool BlockTable::Reserve(int64_t positions) {
  const int64_t missing = CeilDiv(positions, block_positions_) - size();
  if (missing > 0 && !pool_->Allocate(missing, blocks_)) return false;
  peak_size_ = std::max(peak_size_, size());
  return true;
}

void BlockTable::Release() {
  pool_->Release(blocks_);
  blocks_.clear();
}

}  // namespace triptych
