#include "engine/kv_cache/block_pool.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace triptych {

BlockPool::BlockPool(int64_t blocks) : total_(blocks), free_(blocks), states_(blocks + 1) {
  std::iota(free_.rbegin(), free_.rend(), 0);
  states_.back().newer = states_.back().older = static_cast<int32_t>(blocks);
}

bool BlockPool::Allocate(int64_t count, std::vector<int32_t>& out, bool lead) {
  if (count > available()) return false;
  while (free() < count) Evict();
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(free_.back());
    free_.pop_back();
    State& state = states_[out.back()];
    state.ref_count = 1;
    state.lead = lead;
    state.drafted = false;
  }
  peak_allocated_ = std::max(peak_allocated_, allocated());
  return true;
}

void BlockPool::AddReference(int32_t block) {
  State& state = states_[block];
  if (state.ref_count == 0) {
    assert(state.registration == Registration::kKept);
    Unlink(block);
    --evictable_;
    peak_allocated_ = std::max(peak_allocated_, allocated());
  } else {
    if (state.ref_count == 1) ++shared_;
    ++extra_references_;
    if (state.lead) ++extra_lead_references_;
  }
  ++state.ref_count;
}

void BlockPool::Release(std::span<const int32_t> blocks) {
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) ReleaseOne(*block);
}

void BlockPool::ReleaseOne(int32_t block) {
  State& state = states_[block];
  assert(state.ref_count > 0);
  if (--state.ref_count > 0) {
    if (state.ref_count == 1) --shared_;
    --extra_references_;
    if (state.lead) --extra_lead_references_;
  } else if (state.registration == Registration::kKept) {
    Link(block);
    ++evictable_;
  } else {
    Unregister(block);
    free_.push_back(block);
  }
}

void BlockPool::Register(int32_t block, bool keep) {
  assert(states_[block].ref_count > 0);
  states_[block].registration = keep ? Registration::kKept : Registration::kWhileAllocated;
}

void BlockPool::Unregister(int32_t block) {
  State& state = states_[block];
  if (state.registration == Registration::kNone) return;
  state.registration = Registration::kNone;
  on_unregistered_(block);
}

void BlockPool::Evict() {
  const int32_t oldest = states_.back().newer;
  Unlink(oldest);
  --evictable_;
  ++evictions_;
  Unregister(oldest);
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
