// Finds full cache blocks by what their rows depend on. Torch-free, not thread-safe.
#ifndef TRIPTYCH_ENGINE_KV_CACHE_PREFIX_CACHE_H_
#define TRIPTYCH_ENGINE_KV_CACHE_PREFIX_CACHE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/kv_cache/block_pool.h"

namespace triptych {

// A row's bits depend on the tokens up to its position and on how each of these positions attends:
// a prompt's may attend by vanilla attention, generated ones never do. So a block is named by the
// block before it, its own tokens, and which of its positions expand; equal names are equal bits,
// and a name is compared as a whole, not by its hash.
class PrefixCache {
 public:
  // What stands for everything before a block: kShared before the first block of a sequence, or
  // what NewRoot gave to those that share among themselves alone; later Listed::id.
  using Prefix = uint64_t;
  static constexpr Prefix kShared = 0;

  struct Name {
    Prefix before = kShared;
    std::span<const int32_t> tokens;  // block_positions of them
    // Positions of the block, from 0, that attend by vanilla attention: [begin, end).
    int32_t expand_begin = 0, expand_end = 0;
  };

  struct Listed {
    int32_t block;
    Prefix id;  // never used again for another content
  };

  // The pool must outlive the cache.
  PrefixCache(BlockPool& pool, int64_t block_positions);
  ~PrefixCache() { pool_.OnLost(nullptr); }
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  Prefix NewRoot() { return ++ids_; }
  // Grows whenever there is more to find.
  uint64_t listings() const { return ids_; }

  // The block of that name, held or cached.
  std::optional<Listed> Find(const Name& name) const;
  // Lists `block`, which is held and whose rows are written, under the name, and returns it; or
  // returns the one that is listed under it already. `keep`: as of BlockPool::List.
  Listed List(const Name& name, int32_t block, bool keep);
  struct Listing {
    Name name;
    Prefix id;
  };
  // What a block is listed as; absent if it is not. Valid until the next call of another method.
  std::optional<Listing> ListingOf(int32_t block) const;

 private:
  struct Entry {
    uint64_t hash = 0;
    Prefix before = 0, id = 0;  // id: 0 while the block is not listed
    int32_t expand_begin = 0, expand_end = 0;
  };

  uint64_t Hash(const Name& name) const;
  std::optional<Listed> Find(const Name& name, uint64_t hash) const;
  void Forget(int32_t block);

  BlockPool& pool_;
  const int64_t block_positions_;
  const uint64_t salt_;  // so that nobody can make names whose hashes collide
  uint64_t ids_ = 0;
  std::vector<Entry> entries_;                         // of each block
  std::vector<int32_t> tokens_;                        // [blocks, block_positions]
  std::unordered_multimap<uint64_t, int32_t> blocks_;  // by hash
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_KV_CACHE_PREFIX_CACHE_H_
