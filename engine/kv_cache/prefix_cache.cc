#include "engine/kv_cache/prefix_cache.h"

#include <algorithm>
#include <cassert>
#include <random>

namespace triptych {
namespace {

uint64_t RandomSalt() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

// The finalizer of SplitMix64 (Steele, Lea and Flood 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

PrefixCache::PrefixCache(BlockPool& pool, int64_t block_positions)
    : pool_(pool),
      block_positions_(block_positions),
      salt_(RandomSalt()),
      entries_(pool.total()),
      tokens_(pool.total() * block_positions) {
  blocks_.reserve(pool.total());
  pool_.OnLost([this](int32_t block) { Forget(block); });
}

uint64_t PrefixCache::Hash(const Name& name) const {
  uint64_t hash = Mix(salt_ + name.before);
  hash = Mix(hash + (uint64_t{static_cast<uint32_t>(name.expand_begin)} << 32 |
                     static_cast<uint32_t>(name.expand_end)));
  for (const int32_t token : name.tokens) hash = Mix(hash + static_cast<uint32_t>(token) + 1);
  return hash;
}

std::optional<PrefixCache::Listed> PrefixCache::Find(const Name& name) const {
  return Find(name, Hash(name));
}

std::optional<PrefixCache::Listed> PrefixCache::Find(const Name& name, uint64_t hash) const {
  const auto [begin, end] = blocks_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const int32_t block = it->second;
    const Entry& entry = entries_[block];
    if (entry.before == name.before && entry.expand_begin == name.expand_begin &&
        entry.expand_end == name.expand_end &&
        std::equal(name.tokens.begin(), name.tokens.end(),
                   tokens_.begin() + block * block_positions_)) {
      return Listed{block, entry.id};
    }
  }
  return std::nullopt;
}

PrefixCache::Listed PrefixCache::List(const Name& name, int32_t block, bool keep) {
  assert(std::ssize(name.tokens) == block_positions_);
  const uint64_t hash = Hash(name);
  if (const auto listed = Find(name, hash)) return *listed;
  entries_[block] = {.hash = hash,
                     .before = name.before,
                     .id = ++ids_,
                     .expand_begin = name.expand_begin,
                     .expand_end = name.expand_end};
  std::copy(name.tokens.begin(), name.tokens.end(), tokens_.begin() + block * block_positions_);
  blocks_.emplace(hash, block);
  pool_.List(block, keep);
  return {block, entries_[block].id};
}

std::optional<PrefixCache::Listing> PrefixCache::ListingOf(int32_t block) const {
  const Entry& entry = entries_[block];
  if (entry.id == 0) return std::nullopt;
  const auto tokens = std::span(tokens_).subspan(block * block_positions_, block_positions_);
  return Listing{{entry.before, tokens, entry.expand_begin, entry.expand_end}, entry.id};
}

void PrefixCache::Forget(int32_t block) {
  entries_[block].id = 0;
  const auto [begin, end] = blocks_.equal_range(entries_[block].hash);
  for (auto it = begin; it != end; ++it) {
    if (it->second != block) continue;
    blocks_.erase(it);
    return;
  }
  assert(false);
}

}  // namespace triptych
