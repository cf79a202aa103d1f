#include "engine/kv_cache/block_pool.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace triptych {

BlockPool::BlockPool(int64_t blocks) : total_(blocks), free_(blocks) {
  std::iota(free_.rbegin(), free_.rend(), 0);
}

bool BlockPool::Allocate(int64_t count, std::vector<int32_t>& out) {
  if (count > free()) return false;
  out.insert(out.end(), free_.rbegin(), free_.rbegin() + count);
  free_.resize(free_.size() - count);
  peak_used_ = std::max(peak_used_, used());
  return true;
}

void BlockPool::Release(const std::vector<int32_t>& blocks) {
  assert(static_cast<int64_t>(blocks.size()) <= used());
  free_.insert(free_.end(), blocks.rbegin(), blocks.rend());
}

}  // namespace triptych
