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
      states_(pool.total()),
      tokens_(pool.total() * block_positions) {
  blocks_.reserve(pool.total());
  pool_.OnUnregistered([this](int32_t block) { Forget(block); });
}

uint64_t PrefixCache::Hash(const Key& key) const {
  uint64_t hash = Mix(Mix(salt_ + key.before) + static_cast<uint32_t>(key.group));
  hash = Mix(hash + (uint64_t{static_cast<uint32_t>(key.prompt_begin)} << 32 |
                     static_cast<uint32_t>(key.prompt_end)));
  for (const int32_t token : key.tokens) hash = Mix(hash + static_cast<uint32_t>(token) + 1);
  return hash;
}

std::optional<PrefixCache::Entry> PrefixCache::Find(const Key& key) const {
  return Find(key, Hash(key));
}

std::optional<PrefixCache::Entry> PrefixCache::Find(const Key& key, uint64_t hash) const {
  const auto [begin, end] = blocks_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const int32_t block = it->second;
    const State& state = states_[block];
    if (state.before == key.before && state.prompt_begin == key.prompt_begin &&
        state.prompt_end == key.prompt_end && state.group == key.group &&
        std::equal(key.tokens.begin(), key.tokens.end(),
                   tokens_.begin() + block * block_positions_)) {
      return Entry{block, state.id};
    }
  }
  return std::nullopt;
}

PrefixCache::Entry PrefixCache::Register(const Key& key, int32_t block, bool keep) {
  assert(std::ssize(key.tokens) == block_positions_);
  const uint64_t hash = Hash(key);
  if (const auto entry = Find(key, hash)) return *entry;
  states_[block] = {.hash = hash,
                    .before = key.before,
                    .id = ++ids_,
                    .prompt_begin = key.prompt_begin,
                    .prompt_end = key.prompt_end,
                    .group = key.group};
  std::copy(key.tokens.begin(), key.tokens.end(), tokens_.begin() + block * block_positions_);
  blocks_.emplace(hash, block);
  pool_.Register(block, keep);
  return {block, states_[block].id};
}

std::optional<PrefixCache::Registration> PrefixCache::RegisteredAs(int32_t block) const {
  const State& state = states_[block];
  if (state.id == 0) return std::nullopt;
  const auto tokens = std::span(tokens_).subspan(block * block_positions_, block_positions_);
  return Registration{{state.before, tokens, state.prompt_begin, state.prompt_end, state.group},
                      state.id};
}

void PrefixCache::Forget(int32_t block) {
  states_[block].id = 0;
  const auto [begin, end] = blocks_.equal_range(states_[block].hash);
  for (auto it = begin; it != end; ++it) {
    if (it->second != block) continue;
    blocks_.erase(it);
    return;
  }
  assert(false);
}

}  // namespace triptych
