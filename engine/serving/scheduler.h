// Scheduler: the plan of each step's rows, and admission and preemption of sequences.
//
// Single-threaded, without clocks or randomness: the same calls give the same plans.
#ifndef TRIPTYCH_ENGINE_SERVING_SCHEDULER_H_
#define TRIPTYCH_ENGINE_SERVING_SCHEDULER_H_

#include <cstdint>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/kv_cache/prefix_cache.h"
#include "engine/serving/sequence.h"
#include "engine/serving/turn_queue.h"

namespace triptych::serving {

struct SchedulerLimits {
  int64_t max_batch_tokens = 512;  // rows of one step
  int64_t max_running = 64;        // sequences of one step
  // Maxima of the requests that were never admitted; beyond them Submit returns kQueueFull. An
  // empty queue accepts any prompt.
  int64_t max_waiting = 1024;
  int64_t max_waiting_tokens = std::numeric_limits<int64_t>::max();  // Request::tokens
  int64_t max_positions = 0;                                         // the model's context
  std::optional<int64_t> expand_from = {};                           // BackendInfo::expand_from
  // Position from which a prompt's cache rows differ from those of generated tokens; absent: never.
  std::optional<int64_t> prompt_rows_from = {};
  bool prefix_cache = true;  // requests share the blocks of equal prefixes
};

// Rows tokens[start, start + count) of a sequence, computed in one step. `samples`: they include
// the sequence's last token, so that the next one can be chosen. `drafted`: the last of them are
// rows of its draft, after its tokens.
struct Chunk {
  Sequence* sequence;
  int64_t start;
  int64_t count;
  bool samples;
  int64_t drafted = 0;
};

// Continuous batching. Every decoding sequence has a row in every step. Prompts get the remaining
// rows: half go to the prompt admitted first, the rest to the prompts with the fewest rows left. A
// long prompt therefore does not hold up short ones, and they cost it at most half of its rows.
//
// Waiting sequences are admitted in the order of TurnQueue while there are blocks for all their
// tokens. The blocks are reserved at admission and allocated as rows are computed; blocks of an
// equal prefix come from the prefix cache.
//
// Windowed groups of layers give a block back once no later position attends it, and reserve the
// most that they hold at a time. A block that other sequences share is not free when it is given
// back. A prompt may then find fewer blocks than it reserved, and waits for others to end.
//
// When a decoding sequence finds no block, or no prompt finds any, the sequence admitted last is
// preempted. It releases its blocks and waits to be computed again, ahead of all that were never
// admitted. A step that preempts admits no sequence. A step costs O(running), however many
// sequences wait.
//
// The choices of a request share its prompt: the first computes it while the others are held back.
// They then find its blocks in the prefix cache.
class Scheduler {
 public:
  // With this many prompts in prefill, another is admitted only if they leave rows of the step
  // unused.
  static constexpr int64_t kMaxPrefills = 4;
  // Fewest prefill rows per step in expanded attention without scratch. For fewer, expanding all
  // earlier keys and values again costs more than it saves.
  static constexpr int64_t kLeastExpandingRows = 64;

  // The pool must outlive the scheduler.
  Scheduler(const SchedulerLimits& limits, BlockPool& pool, int64_t block_positions,
            const LayerGroups& groups = {});

  // Queues the request if the result is kAccepted. Checks its length against the context and the
  // whole pool, so that an accepted request always finishes.
  SubmitStatus Submit(Request request, const std::shared_ptr<RequestSink>& sink);

  // Number of sequences that decode in the next step, if none is preempted.
  int64_t decoding() const;

  // True if a prompt in prefill has reached expanded attention and has no scratch.
  bool expanding() const;

  // Plans the next step and allocates its blocks; empty if there is nothing to do. It has at most
  // `prompt_rows` prefill rows, or one if no sequence decodes in it. The caller computes the chunks
  // and calls Advance for each whose sequence it does not remove. Valid until the next call.
  const std::vector<Chunk>& Schedule(TurnQueue::Time now, int64_t prompt_rows);
  // True if a sequence of the last plan is in prefill, with or without rows in the step.
  bool prefilling() const { return !prefills_.empty(); }
  // Rows that the last plan leaves unused.
  int64_t free_rows() const;
  // Adds up to counts[i] rows to chunk i of the last plan for tokens of its draft, while rows of
  // the step and unreserved blocks are left: no sequence is preempted for a draft. REQUIRES: no
  // sequence is in prefill, and the rows of the whole draft would fit the context and the request.
  void AddDraftedRows(std::span<const int64_t> counts);
  // Releases the blocks beyond the computed positions, which only a draft allocates.
  void ReleaseDraftedBlocks(Sequence& sequence) { sequence.blocks.Shrink(sequence.computed); }
  // Marks the chunk's rows as written; none of them is drafted. The caller appends sampled tokens
  // to `tokens`. An accepted row is a chunk of its own, after its token is appended.
  void Advance(const Chunk& chunk);

  // The live sequences of a request, by choice; empty if the id is unknown.
  std::vector<Sequence*> Find(const std::string& id) const;
  // The longest waiting request of those never admitted; null if there is none.
  Sequence* OldestWaiting() const { return queue_.Oldest(); }

  // Removes a sequence and returns it with its blocks. Cancels its reservation.
  std::unique_ptr<Sequence> Remove(const Sequence& sequence);

  // True if the sequence's prompt is looked up in the prefix cache. A prompt with logprobs is
  // computed instead.
  static bool LooksUp(const Sequence& sequence) {
    return sequence.root && !(sequence.request->prompt_logprobs && sequence.choice == 0);
  }

  // The live sequences that `query` selects, in order of request.number + choice.
  std::vector<const Sequence*> Sequences(const SequenceQuery& query = {}) const;
  int64_t running() const { return running_; }
  int64_t waiting() const { return std::ssize(sequences_) - running_; }
  int64_t preemptions() const { return preemptions_; }
  // Positions of running sequences whose rows the first group of layers holds; shared ones count
  // once.
  int64_t computed_positions() const;
  // The same of all groups: a position counts once for each group that holds it.
  int64_t computed_rows() const;
  bool empty() const { return sequences_.empty(); }
  const PrefixCache& prefixes() const { return prefixes_; }
  // PrefixCache::Observe. The events must outlive the scheduler.
  void Observe(KvEventLog& events) { prefixes_.Observe(events); }

 private:
  using Number = std::pair<uint64_t, uint64_t>;  // request.number + choice, then order

  static Number NumberOf(const Sequence& sequence) {
    return {sequence.request->number + sequence.choice, sequence.order};
  }
  // Plans one row for each decoding sequence. Returns the rows left of `budget`.
  int64_t PlanDecoding(int64_t budget);
  void Admit(TurnQueue::Time now, int64_t prompt_rows);
  // Blocks that the pool can allocate and that are not reserved.
  int64_t available() const { return pool_.available() - reserved_; }
  // Shares the blocks of an equal prefix from the prefix cache, and reserves blocks for all other
  // tokens. False, with nothing shared or reserved, if too few are available.
  bool Reserve(Sequence& sequence);
  // The most blocks that the sequence takes, besides those of its table, until all its tokens are
  // computed.
  int64_t MissingBlocks(const Sequence& sequence) const;
  void SetReserved(Sequence& sequence, int64_t blocks);
  // Allocates blocks up to `positions`, the reserved ones first. False if too few are available.
  bool AllocateBlocks(Sequence& sequence, int64_t positions);
  // Gives back the blocks of windowed groups that no later position attends.
  void DropUnseenBlocks(Sequence& sequence);
  void ReleaseBlocks(Sequence& sequence);
  // True unless prompts got no blocks.
  bool PlanPrompts(int64_t rows);
  // Marks this many more positions as computed.
  void MoveOn(Sequence& sequence, int64_t positions);
  void StartOtherChoices(const Sequence& first);
  // REQUIRES: a sequence is running.
  void PreemptLast();

  // The prefix key of a sequence's block `index` of a group, after the prefix `before`. REQUIRES:
  // the sequence has a root, and the tokens of that block.
  PrefixCache::Key KeyOf(const Sequence& sequence, PrefixCache::Prefix before, int64_t index,
                         int64_t group) const;
  // Shares the blocks after the registered ones while the prefix cache has them: those of all full
  // groups, and those of windowed groups that later positions attend.
  void FindPrefix(Sequence& sequence);
  // The most blocks that FindPrefix can share. Fills found_.
  int64_t CountFound(const Sequence& sequence);
  // Registers the full blocks whose rows are written.
  void RegisterBlocks(Sequence& sequence);

  SchedulerLimits limits_;
  BlockPool& pool_;
  int64_t block_positions_;
  LayerGroups groups_;
  int64_t most_window_blocks_;  // LayerGroups::MostWindowBlocks
  PrefixCache prefixes_;
  uint64_t submitted_ = 0;

  struct Live {
    std::vector<std::unique_ptr<Sequence>> choices;  // null once removed
    int64_t left = 0;
  };
  std::unordered_map<std::string, Live> requests_;
  std::map<Number, Sequence*> sequences_;
  TurnQueue queue_;  // never admitted
  // In order of admission: first the running sequences, then the preempted ones and the choices
  // that are no longer held back.
  std::list<Sequence*> admitted_;
  std::list<Sequence*>::iterator first_waiting_ = admitted_.end();
  int64_t running_ = 0;
  int64_t reserved_ = 0;  // blocks, for all sequences
  int64_t preemptions_ = 0;
  // The last sequence for which there were too few blocks, and the state at that time. Reserve
  // fails again until that state changes.
  struct Blocked {
    const Sequence* sequence = nullptr;
    int64_t available = 0;
    uint64_t version = 0;
  } blocked_;
  std::vector<Chunk> chunks_;  // of the last step
  // The sequences in prefill in the last step (after a preemption, of all their tokens), in order
  // of admission, with their rows.
  struct Prefill {
    Sequence* sequence;
    int64_t rows;
    int64_t left() const { return sequence->length() - sequence->computed - rows; }
  };
  std::vector<Prefill> prefills_;
  std::vector<Prefill*> shortest_first_;
  // Results of the last CountFound, for each block after the registered ones: its id in the first
  // group, and the blocks of all groups [blocks, groups].
  std::vector<PrefixCache::Prefix> found_ids_;
  std::vector<int32_t> found_;
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_SCHEDULER_H_
