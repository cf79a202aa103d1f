// The blocks of a paged cache and their reference counts.
//
// Not thread-safe.
#ifndef TRIPTYCH_ENGINE_KV_CACHE_BLOCK_POOL_H_
#define TRIPTYCH_ENGINE_KV_CACHE_BLOCK_POOL_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace triptych {

// Blocks are numbered 0 to total() - 1. Each is in one of three states:
//   allocated: its reference count is positive;
//   evictable: its count is zero, but its rows are kept until room is needed;
//   free:      its count is zero, and its rows are meaningless.
// A fresh pool allocates the lowest free block first; later the one freed last. When no block is
// free, the evictable block that was released longest ago is evicted.
//
// Invariants: allocated() + evictable() + free() = total(); peak_allocated() never falls.
class BlockPool {
 public:
  explicit BlockPool(int64_t blocks);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Appends `count` blocks with one reference each to `out`. If fewer are available, changes
  // nothing and returns false. `lead`: whether extra_lead_references counts them.
  bool Allocate(int64_t count, std::vector<int32_t>& out, bool lead = true);
  // Adds a reference to an allocated or evictable block.
  void AddReference(int32_t block);
  // Drops one reference of each block, the last block first, so that the end of a sequence is
  // evicted before its beginning. REQUIRES: they are allocated.
  void Release(std::span<const int32_t> blocks);

  // Marks a block as findable by its contents. When its last reference is dropped it becomes
  // evictable if `keep`, and free otherwise. REQUIRES: it is allocated.
  void Register(int32_t block, bool keep);
  // Marks an allocated block in which a draft model has written the rows of all positions. The next
  // allocation of the block ends the mark.
  void MarkDrafted(int32_t block) { states_[block].drafted = true; }
  bool drafted(int32_t block) const { return states_[block].drafted; }
  // `unregistered` is called whenever a registered block loses its rows; it is then registered no
  // longer.
  void OnUnregistered(std::function<void(int32_t block)> unregistered) {
    on_unregistered_ = std::move(unregistered);
  }

  int64_t total() const { return total_; }
  int64_t free() const { return static_cast<int64_t>(free_.size()); }
  int64_t evictable() const { return evictable_; }
  int64_t allocated() const { return total_ - free() - evictable_; }
  // The number of blocks that Allocate can still return.
  int64_t available() const { return free() + evictable_; }
  int64_t peak_allocated() const { return peak_allocated_; }
  int64_t shared() const { return shared_; }  // blocks with more than one reference
  // References beyond the first of each block.
  int64_t extra_references() const { return extra_references_; }
  int64_t extra_lead_references() const { return extra_lead_references_; }
  int64_t evictions() const { return evictions_; }
  int32_t ref_count(int32_t block) const { return states_[block].ref_count; }
  bool is_evictable(int32_t block) const {
    return states_[block].ref_count == 0 && states_[block].registration == Registration::kKept;
  }

 private:
  enum class Registration : uint8_t { kNone, kWhileAllocated, kKept };
  struct State {
    int32_t ref_count = 0;
    Registration registration = Registration::kNone;
    bool lead = true;
    bool drafted = false;
    int32_t newer = 0, older = 0;  // neighbours in the ring of evictable blocks
  };

  void ReleaseOne(int32_t block);
  void Unregister(int32_t block);
  void Evict();
  // The ring of evictable blocks begins and ends at the state after the last block's.
  void Link(int32_t block);
  void Unlink(int32_t block);

  int64_t total_;
  int64_t evictable_ = 0, peak_allocated_ = 0, shared_ = 0, extra_references_ = 0, evictions_ = 0;
  int64_t extra_lead_references_ = 0;
  std::vector<int32_t> free_;  // the next one to allocate is last
  std::vector<State> states_;
  std::function<void(int32_t)> on_unregistered_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_KV_CACHE_BLOCK_POOL_H_
