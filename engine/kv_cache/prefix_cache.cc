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

PrefixCache::PrefixCache(BlockPool& pool, int64_t block_positions, int64_t remembered)
    : pool_(pool),
      block_positions_(block_positions),
      remembered_(remembered),
      salt_(RandomSalt()),
      name_salt_(RandomSalt()),
      states_(pool.total() + remembered),
      tokens_(std::ssize(states_) * block_positions) {
  slots_.reserve(states_.size());
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
  const std::optional<Slot> slot = FindSlot(key, Hash(key));
  return slot ? std::optional(EntryOf(*slot)) : std::nullopt;
}

std::optional<PrefixCache::Slot> PrefixCache::FindSlot(const Key& key, uint64_t hash) const {
  const auto [begin, end] = slots_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const Slot slot = it->second;
    const State& state = states_[slot];
    if (state.before == key.before && state.prompt_begin == key.prompt_begin &&
        state.prompt_end == key.prompt_end && state.group == key.group &&
        std::equal(key.tokens.begin(), key.tokens.end(),
                   tokens_.begin() + slot * block_positions_)) {
      return slot;
    }
  }
  return std::nullopt;
}

PrefixCache::Entry PrefixCache::EntryOf(Slot slot) const {
  return {slot < pool_.total() ? static_cast<int32_t>(slot) : kEvicted, states_[slot].id};
}

PrefixCache::Entry PrefixCache::Register(const Key& key, int32_t block, bool keep) {
  assert(std::ssize(key.tokens) == block_positions_);
  const uint64_t hash = Hash(key);
  const std::optional<Slot> known = FindSlot(key, hash);
  if (known && *known < pool_.total()) return EntryOf(*known);
  Prefix id = ++ids_;
  if (known) {
    id = states_[*known].id;
    Erase(*known);
  }
  states_[block] = {.hash = hash,
                    .before = key.before,
                    .id = id,
                    .prompt_begin = key.prompt_begin,
                    .prompt_end = key.prompt_end,
                    .group = key.group,
                    .keep = keep};
  std::copy(key.tokens.begin(), key.tokens.end(), tokens_.begin() + block * block_positions_);
  slots_.emplace(hash, block);
  pool_.Register(block, keep);
  if (events_ != nullptr && IsTold(states_[block]))
    events_->Add(Stored(states_[block]), key.tokens);
  return EntryOf(block);
}

std::optional<PrefixCache::Registration> PrefixCache::RegisteredAs(int32_t block) const {
  const State& state = states_[block];
  if (state.id == 0) return std::nullopt;
  const auto tokens = std::span(tokens_).subspan(block * block_positions_, block_positions_);
  return Registration{{state.before, tokens, state.prompt_begin, state.prompt_end, state.group},
                      state.id,
                      state.keep};
}

uint64_t PrefixCache::NameOf(Prefix id) const { return Mix(name_salt_ + id); }

KvEvent PrefixCache::Stored(const State& state) const {
  KvEvent event{.kind = KvEvent::Kind::kStored, .block = NameOf(state.id)};
  if (state.before != kShared) event.parent = NameOf(state.before);
  return event;
}

void PrefixCache::AddAll(KvEventLog& events, std::chrono::steady_clock::time_point now) const {
  std::vector<int32_t> blocks;
  for (int32_t block = 0; block < pool_.total(); ++block) {
    if (states_[block].id != 0 && IsTold(states_[block])) blocks.push_back(block);
  }
  // A block got its id after those before it.
  std::sort(blocks.begin(), blocks.end(),
            [this](int32_t a, int32_t b) { return states_[a].id < states_[b].id; });
  for (const int32_t block : blocks) {
    if (events.added() == KvEventLog::kMaxEvents) events.Publish(now);
    events.Add(Stored(states_[block]),
               std::span(tokens_).subspan(block * block_positions_, block_positions_));
  }
}

std::unordered_multimap<uint64_t, PrefixCache::Slot>::iterator PrefixCache::Listed(Slot slot) {
  auto [it, end] = slots_.equal_range(states_[slot].hash);
  while (it != end && it->second != slot) ++it;
  assert(it != end);
  return it;
}

void PrefixCache::Erase(Slot slot) {
  slots_.erase(Listed(slot));
  states_[slot].id = 0;
}

PrefixCache::Slot PrefixCache::Remember(int32_t block) {
  const auto slot = Slot{pool_.total() + next_remembered_};
  next_remembered_ = (next_remembered_ + 1) % remembered_;
  if (states_[slot].id != 0) Erase(slot);
  states_[slot] = states_[block];
  const auto from = tokens_.begin() + block * block_positions_;
  std::copy(from, from + block_positions_, tokens_.begin() + slot * block_positions_);
  return slot;
}

void PrefixCache::Forget(int32_t block) {
  if (events_ != nullptr && IsTold(states_[block])) {
    events_->Add({.kind = KvEvent::Kind::kRemoved, .block = NameOf(states_[block].id)});
  }
  if (remembered_ == 0 || !states_[block].keep) return Erase(block);
  const Slot slot = Remember(block);
  Listed(block)->second = slot;
  states_[block].id = 0;
}

}  // namespace triptych
