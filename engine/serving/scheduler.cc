#include "engine/serving/scheduler.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace triptych {

Scheduler::Scheduler(const SchedulerLimits& limits, BlockPool& pool, int64_t block_positions)
    : limits_(limits), pool_(pool), block_positions_(block_positions) {}

SubmitStatus Scheduler::Submit(Request request, std::shared_ptr<RequestSink> sink,
                               EngineClock::time_point now) {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const bool generates = request.max_new_tokens > 0;
  if (prompt + (generates ? 1 : 0) > limits_.max_positions) return SubmitStatus::kPromptTooLong;
  // The last token has no row in the cache.
  const int64_t generated_rows =
      generates ? std::min(request.max_new_tokens, limits_.max_positions - prompt) - 1 : 0;
  if (prompt + generated_rows > pool_.total() * block_positions_) return SubmitStatus::kNeverFits;
  if (waiting() >= limits_.max_waiting) return SubmitStatus::kQueueFull;

  auto sequence =
      std::make_unique<Sequence>(std::move(request), std::move(sink), pool_, block_positions_);
  sequence->arrived = now;
  const auto it = sequences_.insert(sequences_.end(), std::move(sequence));
  if (first_waiting_ == sequences_.end()) first_waiting_ = it;
  [[maybe_unused]] const bool inserted = by_id_.emplace((*it)->request.id, it).second;
  assert(inserted);
  return SubmitStatus::kAccepted;
}

const std::vector<Chunk>& Scheduler::Schedule() {
  chunks_.clear();
  int64_t budget = limits_.max_batch_tokens;
  const auto plan = [&](Sequence& sequence) {
    const auto tokens = static_cast<int64_t>(sequence.tokens.size());
    const int64_t count = std::min(tokens - sequence.cached, budget);
    if (!sequence.blocks.Reserve(sequence.cached + count)) return false;
    chunks_.push_back({&sequence, sequence.cached, count, sequence.cached + count == tokens});
    budget -= count;
    return true;
  };

  // Only the youngest running sequence can have more than one row to compute, because one is
  // admitted only in a step that brings all others to their last token. So the oldest first is
  // also decode before prefill.
  for (auto it = sequences_.begin(); it != first_waiting_ && budget > 0;) {
    if (plan(**it)) {
      ++it;
    } else {
      PreemptYoungest();  // which may be this one
    }
  }

  // Admitted only with room for all its tokens, not just for the first chunk: one that ran out of
  // blocks on the way would be preempted and admitted again and again. So a step that preempts
  // admits nobody: fewer blocks are free than the last one preempted gave up.
  while (first_waiting_ != sequences_.end() && running_ < limits_.max_running && budget > 0) {
    Sequence& sequence = **first_waiting_;
    const auto tokens = static_cast<int64_t>(sequence.tokens.size());
    if (tokens > pool_.free() * block_positions_) break;
    sequence.running = true;
    ++running_;
    ++first_waiting_;
    plan(sequence);
  }
  return chunks_;
}

Sequence* Scheduler::Find(const std::string& id) {
  const auto entry = by_id_.find(id);
  return entry == by_id_.end() ? nullptr : entry->second->get();
}

std::unique_ptr<Sequence> Scheduler::Remove(const std::string& id) {
  const auto entry = by_id_.find(id);
  if (entry == by_id_.end()) return nullptr;
  const auto it = entry->second;
  by_id_.erase(entry);
  if (it == first_waiting_) ++first_waiting_;
  std::unique_ptr<Sequence> sequence = std::move(*it);
  sequences_.erase(it);
  if (sequence->running) --running_;
  return sequence;
}

std::vector<const Sequence*> Scheduler::Sequences() const {
  std::vector<const Sequence*> sequences;
  sequences.reserve(sequences_.size());
  for (const auto& sequence : sequences_) sequences.push_back(sequence.get());
  return sequences;
}

void Scheduler::PreemptYoungest() {
  --first_waiting_;
  --running_;
  Sequence& sequence = **first_waiting_;
  sequence.running = false;
  sequence.blocks.Release();
  sequence.cached = 0;
  ++sequence.preemptions;
  ++preemptions_;
}

}  // namespace triptych
