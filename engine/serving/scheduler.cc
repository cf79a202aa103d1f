#include "engine/serving/scheduler.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "engine/base/ceil_div.h"

namespace triptych::serving {

Scheduler::Scheduler(const SchedulerLimits& limits, BlockPool& pool, int64_t block_positions,
                     const LayerGroups& groups)
    : limits_(limits),
      pool_(pool),
      block_positions_(block_positions),
      groups_(groups),
      most_window_blocks_(groups.MostWindowBlocks(limits.max_batch_tokens, block_positions)),
      prefixes_(pool, block_positions,
                groups.full > 0
                    ? 0
                    : std::max(pool.total(), CeilDiv(limits.max_positions, block_positions))) {}

SubmitStatus Scheduler::Submit(Request request, const std::shared_ptr<RequestSink>& sink) {
  const auto prompt = std::ssize(request.prompt);
  const bool generates = request.max_new_tokens > 0;
  if (prompt + (generates ? 1 : 0) > limits_.max_positions) return SubmitStatus::kPromptTooLong;
  // The last token has no row in the cache.
  const int64_t generated_rows =
      generates ? std::min(request.max_new_tokens, limits_.max_positions - prompt) - 1 : 0;
  if (groups_.MostBlocks(prompt + generated_rows, limits_.max_batch_tokens, block_positions_) >
      pool_.total()) {
    return SubmitStatus::kNeverFits;
  }
  if (queue_.size() >= limits_.max_waiting ||
      (queue_.size() > 0 && queue_.tokens() + request.tokens() > limits_.max_waiting_tokens)) {
    return SubmitStatus::kQueueFull;
  }

  const auto shared = std::make_shared<const Request>(std::move(request));
  std::optional<PrefixCache::Prefix> root;
  if (limits_.prefix_cache && shared->share_prefix && generates) {
    root = PrefixCache::kShared;
  } else if (shared->choices > 1) {
    root = prefixes_.NewRoot();
  }
  Live& live = requests_[shared->id];
  assert(live.left == 0);
  live.left = shared->choices;
  for (int32_t choice = 0; choice < shared->choices; ++choice) {
    Sequence& sequence = *live.choices.emplace_back(std::make_unique<Sequence>(
        shared, choice, ++submitted_, sink, pool_, block_positions_, groups_));
    sequence.root = root;
    sequence.last_registered = root.value_or(PrefixCache::kShared);
    sequence.stage = choice == 0 ? Sequence::Stage::kQueued : Sequence::Stage::kHeldBack;
    sequences_.emplace(NumberOf(sequence), &sequence);
  }
  queue_.Push(*live.choices.front());
  return SubmitStatus::kAccepted;
}

int64_t Scheduler::decoding() const {
  return std::count_if(admitted_.begin(), std::list<Sequence*>::const_iterator(first_waiting_),
                       [](const Sequence* sequence) { return sequence->decodes(); });
}

bool Scheduler::expanding() const {
  return limits_.expand_from &&
         std::any_of(admitted_.begin(), std::list<Sequence*>::const_iterator(first_waiting_),
                     [this](const Sequence* sequence) {
                       return !sequence->scratch && sequence->computed >= *limits_.expand_from &&
                              sequence->computed < sequence->prompt_length();
                     });
}

const std::vector<Chunk>& Scheduler::Schedule(TurnQueue::Time now, int64_t prompt_rows) {
  chunks_.clear();
  prefills_.clear();
  const int64_t preemptions = preemptions_;
  prompt_rows = std::min(prompt_rows, PlanDecoding(limits_.max_batch_tokens));
  // Every decoding sequence was preempted; there is no decode latency to protect.
  if (chunks_.empty()) prompt_rows = std::max<int64_t>(prompt_rows, 1);
  // A step that preempts admits no sequence: fewer blocks are available than the last preempted
  // sequence released.
  if (preemptions == preemptions_ && prompt_rows > 0) Admit(now, prompt_rows);
  while (!PlanPrompts(prompt_rows) && chunks_.empty()) {
    // Every running sequence is a prompt in prefill that found no blocks. One alone finds some.
    PreemptLast();
    prefills_.pop_back();
    for (Prefill& prefill : prefills_) prefill.rows = 0;
  }
  return chunks_;
}

int64_t Scheduler::PlanDecoding(int64_t budget) {
  for (auto it = admitted_.begin(); it != first_waiting_;) {
    Sequence& sequence = **it;
    if (!sequence.decodes()) {
      prefills_.push_back({&sequence, 0});
      ++it;
    } else if (budget == 0) {
      ++it;
    } else if (AllocateBlocks(sequence, sequence.length())) {
      chunks_.push_back({&sequence, sequence.computed, 1, true});
      --budget;
      ++it;
    } else {
      PreemptLast();  // possibly this one
    }
  }
  return budget;
}

void Scheduler::Admit(TurnQueue::Time now, int64_t prompt_rows) {
  int64_t left = 0;
  for (const Prefill& prefill : prefills_) left += prefill.left();
  while (running_ < limits_.max_running &&
         (std::ssize(prefills_) < kMaxPrefills || left < prompt_rows)) {
    const bool again = first_waiting_ != admitted_.end();
    Sequence* const sequence = again ? *first_waiting_ : queue_.Front();
    if (sequence == nullptr || !Reserve(*sequence)) return;
    if (again) {
      ++first_waiting_;
    } else {
      queue_.PopFront(now);
      sequence->stage = Sequence::Stage::kAdmitted;
      sequence->admission = admitted_.insert(admitted_.end(), sequence);
    }
    sequence->running = true;
    ++running_;
    prefills_.push_back({sequence, 0});
    left += prefills_.back().left();
  }
}

bool Scheduler::Reserve(Sequence& sequence) {
  if (blocked_.sequence == &sequence && blocked_.available == available() &&
      blocked_.version == prefixes_.version()) {
    return false;
  }
  if (sequence.tokens.empty()) sequence.tokens = sequence.request->prompt;
  FindPrefix(sequence);
  const int64_t missing = MissingBlocks(sequence);
  if (missing > available()) {
    ReleaseBlocks(sequence);
    blocked_ = {&sequence, available(), prefixes_.version()};
    return false;
  }
  SetReserved(sequence, missing);
  return true;
}

int64_t Scheduler::MissingBlocks(const Sequence& sequence) const {
  const BlockTable& table = sequence.blocks;
  const int64_t rest = CeilDiv(sequence.length(), block_positions_) - table.length();
  if (rest <= 0) return 0;
  const int64_t held = table.length() - table.dropped();  // of a windowed group
  return groups_.full * rest +
         groups_.windowed * std::min(rest, std::max<int64_t>(most_window_blocks_ - held, 0));
}

void Scheduler::SetReserved(Sequence& sequence, int64_t blocks) {
  reserved_ += blocks - sequence.reserved;
  sequence.reserved = blocks;
}

bool Scheduler::AllocateBlocks(Sequence& sequence, int64_t positions) {
  const int64_t missing =
      (CeilDiv(positions, block_positions_) - sequence.blocks.length()) * groups_.count();
  if (missing <= 0) return true;
  const int64_t kept = std::min(missing, sequence.reserved);
  if (missing > kept && missing - kept > available()) return false;
  if (missing > pool_.available()) return false;
  SetReserved(sequence, sequence.reserved - kept);
  [[maybe_unused]] const bool reserved = sequence.blocks.Grow(positions);
  assert(reserved);
  return true;
}

void Scheduler::DropUnseenBlocks(Sequence& sequence) {
  if (groups_.windowed == 0) return;
  sequence.blocks.Drop(groups_.Unseen(sequence.computed, block_positions_));
  const int64_t more = MissingBlocks(sequence) - sequence.reserved;
  SetReserved(sequence,
              sequence.reserved + std::clamp<int64_t>(more, 0, std::max<int64_t>(available(), 0)));
}

bool Scheduler::PlanPrompts(int64_t rows) {
  if (prefills_.empty()) return true;
  shortest_first_.clear();
  for (Prefill& prefill : prefills_) {
    FindPrefix(*prefill.sequence);
    shortest_first_.push_back(&prefill);
  }
  const auto grant = [&](Prefill& prefill, int64_t most) {
    const int64_t count = std::min(prefill.left(), most);
    prefill.rows += count;
    rows -= count;
  };
  grant(prefills_.front(), CeilDiv(rows, 2));
  std::stable_sort(shortest_first_.begin(), shortest_first_.end(),
                   [](const Prefill* a, const Prefill* b) { return a->left() < b->left(); });
  for (Prefill* prefill : shortest_first_) grant(*prefill, rows);
  bool all = true;
  for (const Prefill& prefill : prefills_) {
    if (prefill.rows == 0) continue;
    Sequence& sequence = *prefill.sequence;
    if (AllocateBlocks(sequence, sequence.computed + prefill.rows)) {
      chunks_.push_back({&sequence, sequence.computed, prefill.rows, prefill.left() == 0});
    } else {
      assert(groups_.windowed > 0);  // otherwise all of its tokens' blocks were reserved
      all = false;
    }
  }
  return all;
}

int64_t Scheduler::free_rows() const {
  int64_t rows = limits_.max_batch_tokens;
  for (const Chunk& chunk : chunks_) rows -= chunk.count;
  return rows;
}

void Scheduler::AddDraftedRows(std::span<const int64_t> counts) {
  int64_t left = free_rows();
  for (size_t i = 0; i < chunks_.size(); ++i) {
    Chunk& chunk = chunks_[i];
    BlockTable& blocks = chunk.sequence->blocks;
    const int64_t more = std::max<int64_t>(available(), 0) / groups_.count();
    const int64_t room = (blocks.length() + more) * block_positions_ - chunk.start - chunk.count;
    const int64_t rows = std::min({counts[i], left, room});
    if (rows <= 0) continue;
    [[maybe_unused]] const bool grown = blocks.Grow(chunk.start + chunk.count + rows);
    assert(grown);
    chunk.count += rows;
    chunk.drafted += rows;
    left -= rows;
  }
}

void Scheduler::Advance(const Chunk& chunk) {
  Sequence& sequence = *chunk.sequence;
  MoveOn(sequence, chunk.count);
  RegisterBlocks(sequence);
  DropUnseenBlocks(sequence);
  if (chunk.samples && sequence.choice == 0) StartOtherChoices(sequence);
}

void Scheduler::MoveOn(Sequence& sequence, int64_t positions) {
  sequence.computed += positions;
  if (sequence.computed >= sequence.prompt_length()) sequence.scratch.reset();
}

void Scheduler::StartOtherChoices(const Sequence& first) {
  if (first.request->choices == 1) return;
  for (const auto& choice : requests_.at(first.request->id).choices) {
    if (choice == nullptr || choice->stage != Sequence::Stage::kHeldBack) continue;
    choice->stage = Sequence::Stage::kAdmitted;
    choice->admission = admitted_.insert(admitted_.end(), choice.get());
    if (first_waiting_ == admitted_.end()) first_waiting_ = choice->admission;
  }
}

PrefixCache::Key Scheduler::KeyOf(const Sequence& sequence, PrefixCache::Prefix before,
                                  int64_t index, int64_t group) const {
  const int64_t begin = index * block_positions_;
  PrefixCache::Key key{.before = before,
                       .tokens = std::span(sequence.tokens).subspan(begin, block_positions_),
                       .group = static_cast<int32_t>(group)};
  if (limits_.prompt_rows_from) {
    const auto in_block = [&](int64_t position) {
      return static_cast<int32_t>(std::clamp<int64_t>(position - begin, 0, block_positions_));
    };
    key.prompt_begin = in_block(*limits_.prompt_rows_from);
    key.prompt_end = in_block(sequence.prompt_length());
    if (key.prompt_begin >= key.prompt_end) key.prompt_begin = key.prompt_end = 0;
  }
  return key;
}

int64_t Scheduler::CountFound(const Sequence& sequence) {
  const int64_t first = sequence.registered_blocks, groups = groups_.count();
  const int64_t chained = std::max<int64_t>(groups_.full, 1);  // groups without a gap
  found_ids_.clear();
  found_.clear();
  const auto before = [&](int64_t index) {
    return index == first ? sequence.last_registered : found_ids_[index - first - 1];
  };
  const auto find = [&](int64_t index, int64_t from, int64_t to) {
    for (int64_t group = from; group < to; ++group) {
      const auto found = prefixes_.Find(KeyOf(sequence, before(index), index, group));
      if (!found) return false;
      found_[(index - first) * groups + group] =
          found->block == PrefixCache::kEvicted ? BlockTable::kNone : found->block;
      if (group == 0) found_ids_.push_back(found->id);
    }
    return true;
  };
  // At least the last token is computed, for its logits.
  int64_t end = first;
  for (; (end + 1) * block_positions_ < sequence.length(); ++end) {
    found_.resize((end + 1 - first) * groups, BlockTable::kNone);
    if (!find(end, 0, chained)) break;
  }
  // Without a full group, the chain may go over evicted blocks.
  const auto is_held = [&](int64_t index) {
    return found_[(index - first) * groups] != BlockTable::kNone;
  };
  // A gap in a window ends the prefix before it.
  for (int64_t index = end - 1;
       index >= std::max(first, groups_.Unseen(end * block_positions_, block_positions_));
       --index) {
    if (!is_held(index) || !find(index, chained, groups)) end = index;
  }
  return end - first;
}

void Scheduler::FindPrefix(Sequence& sequence) {
  const int64_t first = sequence.registered_blocks, groups = groups_.count();
  if (!LooksUp(sequence) || sequence.computed != first * block_positions_) return;
  assert(sequence.blocks.length() == first);  // no block is ahead of the computed positions
  const int64_t count = CountFound(sequence);
  if (count == 0) return;
  const int64_t unseen = groups_.Unseen((first + count) * block_positions_, block_positions_);
  for (int64_t i = 0; i < count; ++i) {
    const auto blocks = std::span(found_).subspan(i * groups, groups);
    if (first + i < unseen) {
      std::fill(blocks.begin() + groups_.full, blocks.end(), BlockTable::kNone);
    }
    sequence.blocks.Share(blocks);
  }
  sequence.last_registered = found_ids_[count - 1];
  sequence.registered_blocks += count;
  MoveOn(sequence, count * block_positions_);
  SetReserved(sequence, std::min(sequence.reserved, MissingBlocks(sequence)));
  if (sequence.running) DropUnseenBlocks(sequence);
  if (!sequence.recomputes) {
    const int64_t positions = count * block_positions_;
    sequence.cached_prompt_tokens +=
        std::clamp<int64_t>(sequence.prompt_length() - sequence.computed + positions, 0, positions);
  }
}

void Scheduler::RegisterBlocks(Sequence& sequence) {
  if (!sequence.root) return;
  const bool keep = *sequence.root == PrefixCache::kShared;
  while ((sequence.registered_blocks + 1) * block_positions_ <= sequence.computed) {
    const int64_t index = sequence.registered_blocks;
    const PrefixCache::Prefix before = sequence.last_registered;
    for (int64_t group = 0; group < groups_.count(); ++group) {
      const int32_t own = sequence.blocks.blocks()[index * groups_.count() + group];
      const PrefixCache::Entry entry =
          prefixes_.Register(KeyOf(sequence, before, index, group), own, keep);
      // Another sequence has registered this block already; share it (bit-identical).
      if (entry.block != own) sequence.blocks.Replace(index, group, entry.block);
      if (group == 0) sequence.last_registered = entry.id;
    }
    ++sequence.registered_blocks;
  }
}

std::vector<Sequence*> Scheduler::Find(const std::string& id) const {
  std::vector<Sequence*> found;
  if (const auto live = requests_.find(id); live != requests_.end()) {
    for (const auto& choice : live->second.choices) {
      if (choice != nullptr) found.push_back(choice.get());
    }
  }
  return found;
}

std::unique_ptr<Sequence> Scheduler::Remove(const Sequence& sequence) {
  if (blocked_.sequence == &sequence) blocked_ = {};
  sequences_.erase(NumberOf(sequence));
  switch (sequence.stage) {
    case Sequence::Stage::kQueued:
      queue_.Remove(sequence);
      break;
    case Sequence::Stage::kHeldBack:
      break;
    case Sequence::Stage::kAdmitted:
      if (sequence.admission == first_waiting_) ++first_waiting_;
      admitted_.erase(sequence.admission);
      if (sequence.running) --running_;
      break;
  }
  const auto live = requests_.find(sequence.request->id);
  std::unique_ptr<Sequence> removed = std::move(live->second.choices[sequence.choice]);
  SetReserved(*removed, 0);
  if (--live->second.left == 0) requests_.erase(live);
  return removed;
}

std::vector<const Sequence*> Scheduler::Sequences(const SequenceQuery& query) const {
  std::vector<const Sequence*> found;
  auto it = sequences_.begin();
  if (query.after > 0) it = sequences_.upper_bound({query.after, submitted_});
  for (; it != sequences_.end() && found.size() < query.limit; ++it) {
    if (!query.client || it->second->request->client == *query.client) found.push_back(it->second);
  }
  return found;
}

int64_t Scheduler::computed_positions() const {
  int64_t positions = -pool_.extra_lead_references() * block_positions_;
  for (auto it = admitted_.begin(); it != first_waiting_; ++it) {
    positions += (*it)->computed;
    if (groups_.full == 0) positions -= (*it)->blocks.dropped() * block_positions_;
  }
  return positions;
}

int64_t Scheduler::computed_rows() const {
  int64_t rows = -pool_.extra_references() * block_positions_;
  for (auto it = admitted_.begin(); it != first_waiting_; ++it) {
    rows += (*it)->computed * groups_.count() -
            (*it)->blocks.dropped() * groups_.windowed * block_positions_;
  }
  return rows;
}

void Scheduler::PreemptLast() {
  --first_waiting_;
  --running_;
  Sequence& sequence = **first_waiting_;
  sequence.running = false;
  ReleaseBlocks(sequence);
  ++sequence.preemptions;
  ++preemptions_;
}

void Scheduler::ReleaseBlocks(Sequence& sequence) {
  SetReserved(sequence, 0);
  sequence.blocks.Release();
  sequence.scratch.reset();
  sequence.computed = 0;
  sequence.draft_rows = 0;
  sequence.registered_blocks = 0;
  sequence.last_registered = sequence.root.value_or(PrefixCache::kShared);
  if (sequence.first_scheduled) {
    sequence.recomputes = true;
  } else {
    sequence.cached_prompt_tokens = 0;
  }
}

}  // namespace triptych::serving
