#include "tests/simulation/checks.h"

#include <algorithm>

#include "engine/base/ceil_div.h"

namespace triptych::simulation {
namespace {

std::string Text(int64_t value) { return std::to_string(value); }

std::string NameOf(const serving::Sequence& sequence) {
  return "request " + sequence.request->id + " choice " + Text(sequence.choice);
}

// Reports a value that differs from the expected one.
class Equal {
 public:
  Equal(const char* invariant, const Report& report) : invariant_(invariant), report_(report) {}
  void operator()(const char* what, int64_t found, int64_t expected) const {
    if (found == expected) return;
    report_(invariant_, std::string(what) + " is " + Text(found) + ", not " + Text(expected));
  }

 private:
  const char* invariant_;
  const Report& report_;
};

}  // namespace

void EngineChecks::Check(const Report& report) {
  sequences_ = engine_.scheduler().Sequences();
  CheckTables(report);
  CheckBlocks(report);
  CheckReports(report);
  CheckEvents(report);
}

void EngineChecks::CheckTables(const Report& report) {
  const BlockPool& pool = engine_.pool();
  const int64_t size = engine_.info().geometry.block_positions;
  const LayerGroups groups = engine_.info().geometry.Groups();
  holds_.assign(pool.total(), 0);
  rows_.assign(pool.total(), 0);
  running_ = 0;
  int64_t scratches = 0;
  for (const serving::Sequence* sequence : sequences_) {
    const std::vector<int32_t>& blocks = sequence->blocks.blocks();
    if (sequence->running) ++running_;
    if (sequence->scratch) {
      ++scratches;
      if (!sequence->running || sequence->computed >= sequence->prompt_length()) {
        report("scratch memory of a prompt is released after its prefill", NameOf(*sequence));
      }
    }
    if (!sequence->running && (!blocks.empty() || sequence->computed != 0)) {
      report("a waiting sequence has no blocks", NameOf(*sequence));
    }
    if (sequence->computed > std::ssize(blocks) / groups.count() * size) {
      report("every computed row lies in an allocated block", NameOf(*sequence));
      continue;
    }
    if (sequence->blocks.length() > CeilDiv(sequence->computed, size)) {
      report("blocks of rejected drafts are given back", NameOf(*sequence));
    }
    for (int64_t i = 0; i < std::ssize(blocks); ++i) {
      const int64_t first = i / groups.count() * size;  // position
      const bool windowed = i % groups.count() >= groups.full;
      const bool unseen = windowed && first + size <= sequence->computed - groups.window + 1;
      if (unseen != (blocks[i] == BlockTable::kNone)) {
        report("a sequence holds the blocks that later positions attend, and no others",
               NameOf(*sequence));
      }
      if (blocks[i] == BlockTable::kNone) continue;
      ++holds_[blocks[i]];
      const int64_t rows = std::clamp<int64_t>(sequence->computed - first, 0, size);
      rows_[blocks[i]] = std::max(rows_[blocks[i]], rows);
      if (std::find(blocks.begin(), blocks.begin() + i, blocks[i]) != blocks.begin() + i) {
        report("a block table has no duplicates", NameOf(*sequence));
      }
    }
    CheckRows(*sequence, report);
  }
  Equal("every scratch memory of a prompt belongs to a sequence", report)(
      "the model's count", model_.scratches, scratches);
}

void EngineChecks::CheckRows(const serving::Sequence& sequence, const Report& report) const {
  const BackendInfo& info = engine_.info();
  const int64_t size = info.geometry.block_positions, groups = info.geometry.Groups().count();
  for (int64_t i = 0; i < sequence.computed * groups; ++i) {
    const int64_t p = i / groups;
    const int32_t block = sequence.blocks.blocks()[p / size * groups + i % groups];
    if (block == BlockTable::kNone) continue;
    const int64_t row = model_.row(block, p % size);
    const int64_t own =
        FakeModel::Row(sequence.tokens[p], info.expand_from, p, sequence.prompt_length()) +
        i % groups * FakeModel::kGroup;
    if (row == own) continue;
    report(
        "a block's rows belong to its sequence",
        NameOf(sequence) + ", position " + Text(p) + ": row " + Text(row) + ", not " + Text(own));
    return;
  }
}

void EngineChecks::CheckBlocks(const Report& report) {
  const BlockPool& pool = engine_.pool();
  const PrefixCache& prefixes = engine_.scheduler().prefixes();
  const int64_t size = engine_.info().geometry.block_positions;
  int64_t allocated = 0, shared = 0, extra = 0, evictable = 0;
  ids_.assign(prefixes.version() + 1, false);
  ids_[PrefixCache::kShared] = true;
  for (int32_t block = 0; block < pool.total(); ++block) {
    if (const auto registered = prefixes.RegisteredAs(block)) ids_[registered->id] = true;
  }
  for (int32_t block = 0; block < pool.total(); ++block) {
    const int32_t holds = holds_[block];
    if (pool.ref_count(block) != holds) {
      report("the pool's reference counts match the block tables",
             "block " + Text(block) + ": the pool counts " + Text(pool.ref_count(block)) +
                 ", the tables " + Text(holds));
    }
    if (holds > 0) ++allocated;
    if (holds > 1) {
      ++shared;
      extra += holds - 1;
    }
    const auto registered = prefixes.RegisteredAs(block);
    if (holds > 1 && !registered) {
      report("only registered blocks are shared", "block " + Text(block));
    }
    if (!registered) continue;
    if (holds > 0 && rows_[block] < size) {
      report("only full blocks are registered", "block " + Text(block));
    }
    // CheckRows checks by which path (reduced or expanded) the rows were computed.
    for (int64_t i = 0; i < size; ++i) {
      const int64_t row = model_.row(block, i) - registered->key.group * FakeModel::kGroup;
      if (row / 2 == registered->key.tokens[i]) continue;
      report("the rows of a registered block match its key", "block " + Text(block));
      break;
    }
    if (holds > 0) continue;
    ++evictable;
    // Without a full group, a window leaves the beginning first.
    if (!ids_[registered->key.before] && engine_.info().geometry.Groups().full > 0) {
      report("blocks of a prefix are evicted from its end", "block " + Text(block));
    }
  }
  const Equal equal("allocated + evictable + free = total", report);
  equal("allocated()", pool.allocated(), allocated);
  equal("shared()", pool.shared(), shared);
  equal("extra_references()", pool.extra_references(), extra);
  equal("evictable()", pool.evictable(), evictable);
  equal("free()", pool.free(), pool.total() - allocated - evictable);
  peak_allocated_ = std::max(peak_allocated_, allocated);
  if (pool.peak_allocated() < peak_allocated_)
    report("the peak is the largest allocated value", Text(pool.peak_allocated()));
  peak_allocated_ = pool.peak_allocated();
}

void EngineChecks::Replay(const KvEventBatch& batch, const Report& report) {
  const int64_t size = engine_.info().geometry.block_positions;
  auto tokens = batch.tokens.begin();
  for (const KvEvent& event : batch.events) {
    switch (event.kind) {
      case KvEvent::Kind::kStored:
        if (!known_.emplace(event.block, Known{event.parent, std::vector(tokens, tokens + size)})
                 .second) {
          report("a block is stored once before it is removed", Text(next_batch_));
        }
        tokens += size;
        break;
      case KvEvent::Kind::kRemoved:
        if (known_.erase(event.block) == 0) {
          report("only a stored block is removed", Text(next_batch_));
        }
        break;
      case KvEvent::Kind::kCleared:
        known_.clear();
        break;
    }
  }
  if (tokens != batch.tokens.end()) report("a batch has its blocks' tokens", Text(next_batch_));
}

void EngineChecks::CheckEvents(const Report& report) {
  static constexpr const char* kInvariant = "the replayed events are the prefix cache";
  const KvEventLog& events = *engine_.kv_events();
  const PrefixCache& prefixes = engine_.scheduler().prefixes();
  for (auto batch = events.Read(next_batch_); batch != nullptr; batch = events.Read(next_batch_)) {
    Replay(*batch, report);
    ++next_batch_;
  }
  size_t found = 0;
  for (int32_t block = 0; block < engine_.pool().total(); ++block) {
    const auto registered = prefixes.RegisteredAs(block);
    if (!registered || !registered->keep || registered->key.group != 0) continue;
    ++found;
    const auto known = known_.find(prefixes.NameOf(registered->id));
    if (known == known_.end()) {
      report(kInvariant, "block " + Text(block) + " is not stored");
      return;
    }
    const PrefixCache::Prefix before = registered->key.before;
    if (known->second.parent != (before == PrefixCache::kShared
                                     ? std::nullopt
                                     : std::optional(prefixes.NameOf(before))) ||
        !std::equal(registered->key.tokens.begin(), registered->key.tokens.end(),
                    known->second.tokens.begin(), known->second.tokens.end())) {
      report(kInvariant, "block " + Text(block) + " is stored with another parent or tokens");
    }
  }
  Equal(kInvariant, report)("the number of stored blocks", std::ssize(known_),
                            static_cast<int64_t>(found));
}

void EngineChecks::CheckReports(const Report& report) {
  const BlockPool& pool = engine_.pool();
  const BackendInfo& info = engine_.info();
  const int64_t size = info.geometry.block_positions;
  const serving::KvCacheStats stats = engine_.Stats();
  const LayerGroups groups = info.geometry.Groups();
  int64_t positions = 0, all_rows = 0;
  std::vector<bool> counted(pool.total());
  for (const serving::Sequence* sequence : sequences_) {
    const std::vector<int32_t>& blocks = sequence->blocks.blocks();
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i] == BlockTable::kNone || counted[blocks[i]]) continue;
      counted[blocks[i]] = true;
      all_rows += rows_[blocks[i]];
      if (i % groups.count() == 0) positions += rows_[blocks[i]];
    }
  }
  int64_t row_bytes = 0;
  for (const int64_t bytes : info.geometry.row_bytes) row_bytes += bytes;
  const Equal equal("reported statistics match the storage", report);
  equal("pool_bytes", stats.pool_bytes, pool.total() * size * row_bytes / groups.count());
  equal("bytes_per_position", stats.bytes_per_position, row_bytes);
  equal("block_bytes", stats.block_bytes, size * row_bytes / groups.count());
  equal("reserved + cached + free",
        stats.allocated_bytes + stats.evictable_bytes + stats.free_bytes, stats.pool_bytes);
  equal("allocated_bytes", stats.allocated_bytes, pool.allocated() * stats.block_bytes);
  equal("evictable_bytes", stats.evictable_bytes, stats.evictable_blocks * stats.block_bytes);
  equal("free_bytes", stats.free_bytes, stats.free_blocks * stats.block_bytes);
  equal("shared_bytes", stats.shared_bytes, pool.shared() * stats.block_bytes);
  equal("positions", stats.positions, positions);
  equal("used_bytes", stats.used_bytes, all_rows * row_bytes / groups.count());
  equal("mha_used_bytes", stats.mha_used_bytes, positions * info.geometry.mha_bytes_per_position);
  equal("running", stats.running, running_);
  equal("waiting", stats.waiting, std::ssize(sequences_) - running_);

  const std::vector<serving::SequenceStats> listed = engine_.Sequences();
  equal("the number of sequences", std::ssize(listed), std::ssize(sequences_));
  if (listed.size() > 2) {
    const auto page = engine_.Sequences({.after = listed[0].number, .limit = 1});
    equal("the number of sequences on a page", std::ssize(page), 1);
    if (page.size() == 1) {
      equal("the sequence on a page", static_cast<int64_t>(page[0].number),
            static_cast<int64_t>(listed[1].number));
    }
  }
  for (size_t i = 0; i < std::min(listed.size(), sequences_.size()); ++i) {
    const serving::Sequence& sequence = *sequences_[i];
    const KvCacheUsage& usage = listed[i].kv_cache;
    const std::vector<int32_t>& blocks = sequence.blocks.blocks();
    int64_t shared = 0, held = 0, rows = 0;
    for (size_t j = 0; j < blocks.size(); ++j) {
      if (blocks[j] == BlockTable::kNone) continue;
      ++held;
      if (holds_[blocks[j]] > 1) ++shared;
      const auto first = static_cast<int64_t>(j) / groups.count() * size;
      rows += std::clamp<int64_t>(sequence.computed - first, 0, size);
    }
    equal("a sequence's positions", usage.positions, sequence.computed);
    equal("a sequence's used_bytes", usage.used_bytes, rows * row_bytes / groups.count());
    equal("a sequence's allocated_bytes", usage.allocated_bytes, held * stats.block_bytes);
    equal("a sequence's shared_bytes", usage.shared_bytes, shared * stats.block_bytes);
    equal("a sequence's shared + own", usage.shared_bytes + usage.own_bytes, usage.allocated_bytes);
    if (usage.peak_allocated_bytes < usage.allocated_bytes) {
      report("the peak is the largest allocated value", NameOf(sequence));
    }
    if (i > 0 && listed[i - 1].number >= listed[i].number) {
      report("sequences are listed in order of number", NameOf(sequence));
    }
  }
}

void EngineChecks::CheckStep(const StepInput& step, int64_t max_batch_tokens, int64_t max_running,
                             const Report& report) const {
  const BlockPool& pool = engine_.pool();
  const PrefixCache& prefixes = engine_.scheduler().prefixes();
  const int64_t size = engine_.info().geometry.block_positions;
  const std::vector<const serving::Sequence*> sequences = engine_.scheduler().Sequences();
  if (std::ssize(step.ids) > max_batch_tokens || engine_.scheduler().running() > max_running) {
    report("a step is within its limits", Text(std::ssize(step.ids)) + " rows, " +
                                              Text(engine_.scheduler().running()) + " running");
  }
  size_t id = 0;
  std::vector<const serving::Sequence*> seen;
  for (const StepInput::Sequence& part : step.sequences) {
    const auto found =
        std::find_if(sequences.begin(), sequences.end(), [&](const serving::Sequence* s) {
          return s->running && s->blocks.blocks().data() == part.blocks;
        });
    if (found == sequences.end() || std::find(seen.begin(), seen.end(), *found) != seen.end()) {
      report("a step has each running sequence at most once", "");
      return;
    }
    const serving::Sequence& sequence = **found;
    seen.push_back(&sequence);
    const int64_t end = part.start + part.count;
    const std::vector<int32_t>& draft = sequence.speculation.draft.tokens;
    const bool decodes = part.start + 1 == sequence.length();
    if (part.start != sequence.computed || part.count < 1 ||
        end > sequence.length() + (decodes ? std::ssize(draft) : 0) ||
        part.prompt != sequence.prompt_length()) {
      report("a step computes the next positions", NameOf(sequence));
      return;
    }
    const int64_t groups = engine_.info().geometry.Groups().count();
    if (sequence.blocks.length() < CeilDiv(end, size)) {
      report("every computed row lies in an allocated block", NameOf(sequence));
      return;
    }
    for (int64_t p = part.start; p < end; ++p, ++id) {
      if (step.ids[id] !=
          (p < sequence.length() ? sequence.tokens[p] : draft[p - sequence.length()])) {
        report("a step computes the next positions", NameOf(sequence));
      }
      for (int64_t group = 0; group < groups; ++group) {
        const int32_t block = part.blocks[p / size * groups + group];
        if (block == BlockTable::kNone || pool.ref_count(block) != 1 ||
            prefixes.RegisteredAs(block)) {
          report("rows are written only to unshared, unregistered blocks",
                 NameOf(sequence) + ", block " + Text(block));
        }
      }
    }
  }
}

}  // namespace triptych::simulation
