#include "engine/kv_cache/block_pool.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace triptych {

BlockPool::BlockPool(int64_t blocks) : total_(blocks), free_(blocks), states_(blocks + 1) {
  std::iota(free_.rbegin(), free_.rend(), 0);
  states_.back().newer = states_.back().older = static_cast<int32_t>(blocks);
}

bool BlockPool::Allocate(int64_t count, std::vector<int32_t>& out) {
  if (count > available()) return false;
  while (free() < count) Evict();
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(free_.back());
    free_.pop_back();
    states_[out.back()].holds = 1;
  }
  peak_held_ = std::max(peak_held_, held());
  return true;
}

void BlockPool::Hold(int32_t block) {
  State& state = states_[block];
  if (state.holds == 0) {
    assert(state.listing == Listing::kKept);
    Unlink(block);
    --cached_;
    peak_held_ = std::max(peak_held_, held());
  } else {
    if (state.holds == 1) ++shared_;
    ++extra_holds_;
  }
  ++state.holds;
}

void BlockPool::Release(std::span<const int32_t> blocks) {
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) ReleaseOne(*block);
}

void BlockPool::ReleaseOne(int32_t block) {
  State& state = states_[block];
  assert(state.holds > 0);
  if (--state.holds > 0) {
    if (state.holds == 1) --shared_;
    --extra_holds_;
  } else if (state.listing == Listing::kKept) {
    Link(block);
    ++cached_;
  } else {
    Lose(block);
    free_.push_back(block);
  }
}

void BlockPool::List(int32_t block, bool keep) {
  assert(states_[block].holds > 0);
  states_[block].listing = keep ? Listing::kKept : Listing::kWhileHeld;
}

void BlockPool::Lose(int32_t block) {
  State& state = states_[block];
  if (state.listing == Listing::kNot) return;
  state.listing = Listing::kNot;
  on_lost_(block);
}

void BlockPool::Evict() {
  const int32_t oldest = states_.back().newer;
  Unlink(oldest);
  --cached_;
  ++evictions_;
  Lose(oldest);
  free_.push_back(oldest);
}

void BlockPool::Link(int32_t block) {
  const auto end = static_cast<int32_t>(total_);
  State& state = states_[block];
  state.newer = end;
  state.older = states_[end].older;
  states_[state.older].newer = block;
  states_[end].older = block;
}

void BlockPool::Unlink(int32_t block) {
  const State& state = states_[block];
  states_[state.newer].older = state.older;
  states_[state.older].newer = state.newer;
}

}  // namespace triptych
