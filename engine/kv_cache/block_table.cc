#include "engine/kv_cache/block_table.h"

#include <algorithm>

#include "engine/base/ceil_div.h"

namespace triptych {

bool BlockTable::Grow(int64_t positions) {
  const int64_t missing = CeilDiv(positions, block_positions_) - length();
  if (missing > 0 && missing * groups_.count() > pool_->available()) return false;
  for (int64_t i = 0; i < missing; ++i) {
    for (int64_t group = 0; group < groups_.count(); ++group) {
      pool_->Allocate(1, blocks_, /*lead=*/group == 0);
    }
  }
  peak_size_ = std::max(peak_size_, size());
  return true;
}

void BlockTable::Share(std::span<const int32_t> blocks) {
  const bool whole = blocks.back() != kNone;
  if (!whole) Drop(length());
  for (const int32_t block : blocks) {
    if (block != kNone) pool_->AddReference(block);
    blocks_.push_back(block);
  }
  if (!whole) ++dropped_;
  peak_size_ = std::max(peak_size_, size());
}

void BlockTable::Replace(int64_t index, int64_t group, int32_t block) {
  int32_t& own = blocks_[index * groups_.count() + group];
  pool_->AddReference(block);
  pool_->Release({&own, 1});
  own = block;
}

void BlockTable::Drop(int64_t index) {
  for (; dropped_ < index; ++dropped_) {
    for (int64_t group = groups_.full; group < groups_.count(); ++group) {
      int32_t& block = blocks_[dropped_ * groups_.count() + group];
      pool_->Release({&block, 1});
      block = kNone;
    }
  }
}

void BlockTable::Shrink(int64_t positions) {
  const int64_t kept = CeilDiv(positions, block_positions_) * groups_.count();
  for (; std::ssize(blocks_) > kept; blocks_.pop_back()) pool_->Release({&blocks_.back(), 1});
}

void BlockTable::Release() {
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    if (*block != kNone) pool_->Release({&*block, 1});
  }
  blocks_.clear();
  dropped_ = 0;
}

int64_t BlockTable::shared() const {
  return std::count_if(blocks_.begin(), blocks_.end(), [this](int32_t block) {
    return block != kNone && pool_->ref_count(block) > 1;
  });
}

}  // namespace triptych
