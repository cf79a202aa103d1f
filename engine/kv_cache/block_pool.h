// Which blocks of a paged cache are held, and by how many. Torch-free, not thread-safe.
#ifndef TRIPTYCH_ENGINE_KV_CACHE_BLOCK_POOL_H_
#define TRIPTYCH_ENGINE_KV_CACHE_BLOCK_POOL_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace triptych {

// Blocks are 0 to total - 1. A block is held by one or more, or free, or cached: held by nobody,
// but its rows are kept until room is needed. Free blocks are allocated lowest first from a fresh
// pool, then those released last; when none is left, the cached block that was released longest ago
// is evicted.
//
// Invariants: held() + cached() + free() = total(); peak_held() never falls.
class BlockPool {
 public:
  explicit BlockPool(int64_t blocks);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Appends `count` blocks, each held once, to `out`, or changes nothing and returns false if fewer
  // are available.
  bool Allocate(int64_t count, std::vector<int32_t>& out);
  // Holds a held or cached block once more.
  void Hold(int32_t block);
  // Gives up one hold of each, the last one first: of cached blocks, the end of a sequence is
  // evicted before its beginning. REQUIRES: they are held.
  void Release(std::span<const int32_t> blocks);

  // A listed block can be found by its rows. When the last hold is given up it is cached if `keep`,
  // and free otherwise. REQUIRES: it is held.
  void List(int32_t block, bool keep);
  // Is called whenever a listed block's rows are lost, and with that it is no longer listed.
  void OnLost(std::function<void(int32_t block)> lost) { on_lost_ = std::move(lost); }

  int64_t total() const { return total_; }
  int64_t free() const { return static_cast<int64_t>(free_.size()); }
  int64_t cached() const { return cached_; }
  int64_t held() const { return total_ - free() - cached_; }
  // How many more can be allocated.
  int64_t available() const { return free() + cached_; }
  int64_t peak_held() const { return peak_held_; }
  int64_t shared() const { return shared_; }            // blocks held more than once
  int64_t extra_holds() const { return extra_holds_; }  // beyond the first one of each block
  int64_t evictions() const { return evictions_; }
  int32_t holds(int32_t block) const { return states_[block].holds; }
  bool is_cached(int32_t block) const {
    return states_[block].holds == 0 && states_[block].listing == Listing::kKept;
  }

 private:
  enum class Listing : uint8_t { kNot, kWhileHeld, kKept };
  struct State {
    int32_t holds = 0;
    Listing listing = Listing::kNot;
    int32_t newer = 0, older = 0;  // neighbours in the ring of cached blocks
  };

  void ReleaseOne(int32_t block);
  void Lose(int32_t block);
  void Evict();
  // The ring of cached blocks begins and ends at the state after the last block's.
  void Link(int32_t block);
  void Unlink(int32_t block);

  int64_t total_;
  int64_t cached_ = 0, peak_held_ = 0, shared_ = 0, extra_holds_ = 0, evictions_ = 0;
  std::vector<int32_t> free_;  // the next one to take is last
  std::vector<State> states_;
  std::function<void(int32_t)> on_lost_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_KV_CACHE_BLOCK_POOL_H_
