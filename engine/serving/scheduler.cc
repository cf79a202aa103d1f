#include "engine/serving/scheduler.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "engine/base/ceil_div.h"

namespace triptych {

Scheduler::Scheduler(const SchedulerLimits& limits, BlockPool& pool, int64_t block_positions)
    : limits_(limits),
      pool_(pool),
      block_positions_(block_positions),
      prefixes_(pool, block_positions) {}

SubmitStatus Scheduler::Submit(Request request, const std::shared_ptr<RequestSink>& sink) {
  const auto prompt = std::ssize(request.prompt);
  const bool generates = request.max_new_tokens > 0;
  if (prompt + (generates ? 1 : 0) > limits_.max_positions) return SubmitStatus::kPromptTooLong;
  // The last token has no row in the cache.
  const int64_t generated_rows =
      generates ? std::min(request.max_new_tokens, limits_.max_positions - prompt) - 1 : 0;
  if (prompt + generated_rows > pool_.total() * block_positions_) return SubmitStatus::kNeverFits;
  if (queue_.size() >= limits_.max_waiting ||
      (queue_.size() > 0 && queue_.prompt_tokens() + prompt > limits_.max_waiting_tokens)) {
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
    Sequence& sequence = *live.choices.emplace_back(
        std::make_unique<Sequence>(shared, choice, ++submitted_, sink, pool_, block_positions_));
    sequence.root = root;
    sequence.listed = root.value_or(PrefixCache::kShared);
    sequence.place = choice == 0 ? Sequence::Place::kQueue : Sequence::Place::kHeldBack;
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
                       return !sequence->scratch && sequence->cached >= *limits_.expand_from &&
                              sequence->cached < sequence->prompt();
                     });
}

const std::vector<Chunk>& Scheduler::Schedule(TurnQueue::Time now, int64_t prompt_rows) {
  chunks_.clear();
  prefills_.clear();
  const int64_t preemptions = preemptions_;
  prompt_rows = std::min(prompt_rows, PlanDecoding(limits_.max_batch_tokens));
  // All who were to generate were preempted: nobody is to be kept at a pace.
  if (chunks_.empty()) prompt_rows = std::max<int64_t>(prompt_rows, 1);
  // A step that preempts admits nobody: fewer blocks are free than the last one preempted gave up.
  if (preemptions == preemptions_ && prompt_rows > 0) Admit(now, prompt_rows);
  PlanPrompts(prompt_rows);
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
    } else if (Take(sequence, sequence.length())) {
      chunks_.push_back({&sequence, sequence.cached, 1, true});
      --budget;
      ++it;
    } else {
      PreemptLast();  // which may be this one
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
    if (sequence == nullptr || !Promise(*sequence)) return;
    if (again) {
      ++first_waiting_;
    } else {
      queue_.PopFront(now);
      sequence->place = Sequence::Place::kAdmitted;
      sequence->admission = admitted_.insert(admitted_.end(), sequence);
    }
    sequence->running = true;
    ++running_;
    prefills_.push_back({sequence, 0});
    left += prefills_.back().left();
  }
}

bool Scheduler::Promise(Sequence& sequence) {
  if (blocked_.sequence == &sequence && blocked_.available == available() &&
      blocked_.listings == prefixes_.listings()) {
    return false;
  }
  if (sequence.tokens.empty()) sequence.tokens = sequence.request->prompt;
  FindPrefix(sequence);
  const int64_t missing = CeilDiv(sequence.length(), block_positions_) - sequence.blocks.size();
  if (missing > available()) {
    GiveUpBlocks(sequence);
    blocked_ = {&sequence, available(), prefixes_.listings()};
    return false;
  }
  sequence.promised = missing;
  promised_ += missing;
  return true;
}

bool Scheduler::Take(Sequence& sequence, int64_t positions) {
  const int64_t missing = CeilDiv(positions, block_positions_) - sequence.blocks.size();
  if (missing <= 0) return true;
  const int64_t kept = std::min(missing, sequence.promised);
  if (missing - kept > available()) return false;
  sequence.promised -= kept;
  promised_ -= kept;
  [[maybe_unused]] const bool reserved = sequence.blocks.Reserve(positions);
  assert(reserved);
  return true;
}

void Scheduler::BreakPromise(Sequence& sequence) {
  promised_ -= sequence.promised;
  sequence.promised = 0;
}

void Scheduler::PlanPrompts(int64_t rows) {
  if (prefills_.empty()) return;
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
  for (const Prefill& prefill : prefills_) {
    if (prefill.rows == 0) continue;
    Sequence& sequence = *prefill.sequence;
    [[maybe_unused]] const bool taken = Take(sequence, sequence.cached + prefill.rows);
    assert(taken);  // all of its tokens' blocks were promised
    chunks_.push_back({&sequence, sequence.cached, prefill.rows, prefill.left() == 0});
  }
}

void Scheduler::Advance(const Chunk& chunk) {
  Sequence& sequence = *chunk.sequence;
  MoveOn(sequence, chunk.count);
  ListBlocks(sequence);
  if (chunk.samples && sequence.choice == 0) StartOtherChoices(sequence);
}

void Scheduler::MoveOn(Sequence& sequence, int64_t positions) {
  sequence.cached += positions;
  if (sequence.cached >= sequence.prompt()) sequence.scratch.reset();
}

void Scheduler::StartOtherChoices(const Sequence& first) {
  if (first.request->choices == 1) return;
  for (const auto& choice : requests_.at(first.request->id).choices) {
    if (choice == nullptr || choice->place != Sequence::Place::kHeldBack) continue;
    choice->place = Sequence::Place::kAdmitted;
    choice->admission = admitted_.insert(admitted_.end(), choice.get());
    if (first_waiting_ == admitted_.end()) first_waiting_ = choice->admission;
  }
}

PrefixCache::Name Scheduler::NameOf(const Sequence& sequence) const {
  const int64_t begin = sequence.listed_blocks * block_positions_;
  PrefixCache::Name name{.before = sequence.listed,
                         .tokens = std::span(sequence.tokens).subspan(begin, block_positions_)};
  if (limits_.prompt_rows_from) {
    const auto in_block = [&](int64_t position) {
      return static_cast<int32_t>(std::clamp<int64_t>(position - begin, 0, block_positions_));
    };
    name.expand_begin = in_block(*limits_.prompt_rows_from);
    name.expand_end = in_block(sequence.prompt());
    if (name.expand_begin >= name.expand_end) name.expand_begin = name.expand_end = 0;
  }
  return name;
}

void Scheduler::FindPrefix(Sequence& sequence) {
  if (!LooksUp(sequence)) return;
  // At least the last token is computed, for its logits.
  while (sequence.cached == sequence.listed_blocks * block_positions_ &&
         sequence.cached + block_positions_ < sequence.length()) {
    const auto found = prefixes_.Find(NameOf(sequence));
    if (!found) return;
    if (sequence.listed_blocks < sequence.blocks.size()) {
      sequence.blocks.Replace(sequence.listed_blocks, found->block);
    } else {
      sequence.blocks.Share(found->block);
      if (sequence.promised > 0) {
        --sequence.promised;
        --promised_;
      }
    }
    sequence.listed = found->id;
    ++sequence.listed_blocks;
    MoveOn(sequence, block_positions_);
    if (!sequence.recomputes) {
      sequence.cached_prompt_tokens += std::clamp<int64_t>(
          sequence.prompt() - sequence.cached + block_positions_, 0, block_positions_);
    }
  }
}

void Scheduler::ListBlocks(Sequence& sequence) {
  if (!sequence.root) return;
  while ((sequence.listed_blocks + 1) * block_positions_ <= sequence.cached) {
    const int32_t own = sequence.blocks.blocks()[sequence.listed_blocks];
    const bool keep = *sequence.root == PrefixCache::kShared;
    const PrefixCache::Listed listed = prefixes_.List(NameOf(sequence), own, keep);
    // Computed by another meanwhile: the same bits.
    if (listed.block != own) sequence.blocks.Replace(sequence.listed_blocks, listed.block);
    sequence.listed = listed.id;
    ++sequence.listed_blocks;
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
  switch (sequence.place) {
    case Sequence::Place::kQueue:
      queue_.Remove(sequence);
      break;
    case Sequence::Place::kHeldBack:
      break;
    case Sequence::Place::kAdmitted:
      if (sequence.admission == first_waiting_) ++first_waiting_;
      admitted_.erase(sequence.admission);
      if (sequence.running) --running_;
      break;
  }
  const auto live = requests_.find(sequence.request->id);
  std::unique_ptr<Sequence> removed = std::move(live->second.choices[sequence.choice]);
  BreakPromise(*removed);
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

int64_t Scheduler::cached_positions() const {
  int64_t positions = -pool_.extra_holds() * block_positions_;
  for (auto it = admitted_.begin(); it != first_waiting_; ++it) positions += (*it)->cached;
  return positions;
}

void Scheduler::PreemptLast() {
  --first_waiting_;
  --running_;
  Sequence& sequence = **first_waiting_;
  sequence.running = false;
  GiveUpBlocks(sequence);
  ++sequence.preemptions;
  ++preemptions_;
}

void Scheduler::GiveUpBlocks(Sequence& sequence) {
  BreakPromise(sequence);
  sequence.blocks.Release();
  sequence.scratch.reset();
  sequence.cached = 0;
  sequence.listed_blocks = 0;
  sequence.listed = sequence.root.value_or(PrefixCache::kShared);
  if (sequence.first_scheduled) {
    sequence.recomputes = true;
  } else {
    sequence.cached_prompt_tokens = 0;
  }
}

}  // namespace triptych
