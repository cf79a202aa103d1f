// Finds full cache blocks by everything that their rows depend on.
//
// Not thread-safe.
#ifndef TRIPTYCH_ENGINE_KV_CACHE_PREFIX_CACHE_H_
#define TRIPTYCH_ENGINE_KV_CACHE_PREFIX_CACHE_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/kv_cache/block_pool.h"
#include "engine/kv_cache/kv_event_log.h"

namespace triptych {

// The bits of a cache row depend on the tokens up to its position, and on whether each of them was
// computed as part of a prompt, since the rows of prompts may be computed by another path. A
// block's key is therefore the block before it, its own tokens, which of its positions are prompt
// rows, and its group of layers. The block before it is one of the first group in every key. Equal
// keys mean equal bits. Keys are compared as a whole, not by their hashes.
class PrefixCache {
 public:
  // Stands for everything before a block: kShared or a value of NewRoot before the first block of a
  // sequence, and Entry::id later. Only sequences with the same root share blocks.
  using Prefix = uint64_t;
  static constexpr Prefix kShared = 0;

  struct Key {
    Prefix before = kShared;
    std::span<const int32_t> tokens;  // [block_positions]
    // The block's prompt rows, from 0: [prompt_begin, prompt_end). Empty if prompt rows have the
    // same bits as generated ones.
    int32_t prompt_begin = 0, prompt_end = 0;
    int32_t group = 0;
  };

  static constexpr int32_t kEvicted = -1;
  struct Entry {
    int32_t block;  // kEvicted: it has lost its rows
    Prefix id;      // never reused for other contents
  };

  // The cache remembers up to `remembered` blocks that were evicted last, so that blocks after them
  // are found. Finding a remembered block does not renew it: a prefix is computed again when its
  // first blocks have been evicted for that long. The pool must outlive the cache.
  PrefixCache(BlockPool& pool, int64_t block_positions, int64_t remembered = 0);
  ~PrefixCache() { pool_.OnUnregistered(nullptr); }
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  Prefix NewRoot() { return ++ids_; }
  // Grows whenever Find may find more than before.
  uint64_t version() const { return ids_; }

  // The block with that key, allocated or evictable, or else remembered.
  std::optional<Entry> Find(const Key& key) const;
  // Registers `block`, which is allocated and whose rows are written, and returns its entry, with
  // the id of an evicted block that had that key. If another block has that key already, returns
  // that one's entry instead. `keep`: see BlockPool::Register; other blocks are not remembered.
  Entry Register(const Key& key, int32_t block, bool keep);
  struct Registration {
    Key key;
    Prefix id;
    bool keep;
  };
  // The registration of a block, if it has one. Valid until the next call of another method.
  std::optional<Registration> RegisteredAs(int32_t block) const;

  // From now on tells `events` of each kept block of the first group that is registered or loses
  // its rows. They must outlive the cache.
  void Observe(KvEventLog& events) { events_ = &events; }
  // Adds those that are registered now, each after those before it. Publishes all batches but the
  // last, of kMaxEvents each, at `now`. Scans every block.
  void AddAll(KvEventLog& events, std::chrono::steady_clock::time_point now) const;
  // The name of a block in events, from its id: equal for equal keys while the block is registered
  // or remembered, never equal for two keys, and other than the names of another process.
  uint64_t NameOf(Prefix id) const;

 private:
  struct State {
    uint64_t hash = 0;
    Prefix before = 0, id = 0;  // id: 0 while the block is not registered
    int32_t prompt_begin = 0, prompt_end = 0, group = 0;
    bool keep = false;
  };
  // A block, or pool_.total() and more for a remembered one.
  using Slot = int64_t;

  uint64_t Hash(const Key& key) const;
  bool IsTold(const State& state) const { return state.keep && state.group == 0; }
  KvEvent Stored(const State& state) const;
  std::optional<Slot> FindSlot(const Key& key, uint64_t hash) const;
  Entry EntryOf(Slot slot) const;
  std::unordered_multimap<uint64_t, Slot>::iterator Listed(Slot slot);
  void Erase(Slot slot);
  // Copies a block's key to the slot that was remembered first, and returns that.
  Slot Remember(int32_t block);
  void Forget(int32_t block);

  BlockPool& pool_;
  const int64_t block_positions_;
  const int64_t remembered_;
  int64_t next_remembered_ = 0;
  const uint64_t salt_;  // so that nobody can construct keys whose hashes collide
  const uint64_t name_salt_;
  KvEventLog* events_ = nullptr;
  uint64_t ids_ = 0;
  std::vector<State> states_;                      // [slots]
  std::vector<int32_t> tokens_;                    // [slots, block_positions]
  std::unordered_multimap<uint64_t, Slot> slots_;  // by hash
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_KV_CACHE_PREFIX_CACHE_H_
