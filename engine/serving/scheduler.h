// Decides what each step computes. Torch-free, single-threaded, without clocks or randomness: the
// same calls give the same plans.
#ifndef TRIPTYCH_ENGINE_SERVING_SCHEDULER_H_
#define TRIPTYCH_ENGINE_SERVING_SCHEDULER_H_

#include <cstdint>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/kv_cache/prefix_cache.h"
#include "engine/serving/sequence.h"
#include "engine/serving/turn_queue.h"

namespace triptych::serving {

struct SchedulerLimits {
  int64_t max_batch_tokens = 512;  // token rows in one step
  int64_t max_running = 64;        // sequences in one step
  // Of requests that were never admitted, beyond which a submit is refused with kQueueFull.
  int64_t max_waiting = 1024;
  int64_t max_waiting_tokens = std::numeric_limits<int64_t>::max();  // of their prompts
  int64_t max_positions = 0;                                         // the model's context
  std::optional<int64_t> expand_from = {};                           // BackendInfo's
  // The position from which on a prompt's cache rows differ from those of generated tokens.
  std::optional<int64_t> prompt_rows_from = {};
  bool prefix_cache = true;  // prompts of different requests share blocks
};

// Rows tokens[start, start + count) of a sequence, to be computed in one step. `samples` is true
// when they reach the sequence's last token, so that the next one can be chosen.
struct Chunk {
  Sequence* sequence;
  int64_t start;
  int64_t count;
  bool samples;
};

// Continuous batching. Every sequence that generates has its row in every step. What is left of the
// step's rows goes to prompts: half to the one admitted first, the rest to those that have least
// left, so that a short one is not held up by a long one, and a long one at most by half. Waiting
// sequences are admitted in the order of TurnQueue while there are blocks for all their tokens,
// which are reserved to them and taken as they are computed; they find those of an equal prefix in
// the prefix cache. When a running sequence finds no block, the one admitted last is preempted: it
// gives up its blocks and waits, before all that were never admitted, to be computed anew. No
// sequence is admitted in a step that preempts. A step costs O(running), however many wait.
//
// Choices of a request share its prompt: the first computes it, the others are held back meanwhile,
// and then find its blocks.
class Scheduler {
 public:
  // Prompts that are computed at the same time, at most.
  static constexpr int64_t kMaxPrefills = 4;
  // Expanding keys and values of all that came before, where they are not kept, costs more than it
  // saves for fewer rows.
  static constexpr int64_t kLeastExpandingRows = 64;

  // The pool must outlive the scheduler.
  Scheduler(const SchedulerLimits& limits, BlockPool& pool, int64_t block_positions);

  // Takes the request in, unless the status says otherwise. A sequence's positions are checked
  // against the context and against the whole pool, so that an accepted request always finishes.
  SubmitStatus Submit(Request request, const std::shared_ptr<RequestSink>& sink);

  // How many sequences the next step generates tokens of, if none is preempted.
  int64_t decoding() const;

  // A prompt under way attends by expanded attention where it is, and keeps nothing.
  bool expanding() const;

  // The next step, with blocks reserved for it, and at most `prompt_rows` rows of prompts; empty
  // when there is nothing to do. The caller computes the chunks and calls Advance for each one that
  // it did not remove. Valid until the next call.
  const std::vector<Chunk>& Schedule(TurnQueue::Time now, int64_t prompt_rows);
  // The chunk's rows are written. The caller appends to `tokens` what it samples.
  void Advance(const Chunk& chunk);

  // The live sequences of a request, by choice; empty if it is not here.
  std::vector<Sequence*> Find(const std::string& id) const;
  // The request that has waited longest of those never admitted; null if there is none.
  Sequence* OldestWaiting() const { return queue_.Oldest(); }

  // Takes a sequence out, finished or cancelled. Its blocks go with it.
  std::unique_ptr<Sequence> Remove(const Sequence& sequence);

  // Whether the sequence's prompt is looked up in the prefix cache. One that is scored is computed.
  static bool LooksUp(const Sequence& sequence) {
    return sequence.root && !(sequence.request->prompt_logprobs && sequence.choice == 0);
  }

  // Up to `limit` live sequences of those after `after`, in the order of request.number + choice.
  std::vector<const Sequence*> Sequences(const SequenceQuery& query = {}) const;
  int64_t running() const { return running_; }
  int64_t waiting() const { return std::ssize(sequences_) - running_; }
  int64_t preemptions() const { return preemptions_; }
  int64_t computed_positions() const;  // of all sequences, each shared position once
  bool empty() const { return sequences_.empty(); }
  const PrefixCache& prefixes() const { return prefixes_; }

 private:
  using Number = std::pair<uint64_t, uint64_t>;  // request.number + choice, then order

  static Number NumberOf(const Sequence& sequence) {
    return {sequence.request->number + sequence.choice, sequence.order};
  }
  // Returns the rows left of `budget`.
  int64_t PlanDecoding(int64_t budget);
  void Admit(TurnQueue::Time now, int64_t prompt_rows);
  // Blocks that can be had, and are not reserved to anybody.
  int64_t available() const { return pool_.available() - reserved_; }
  // Promises blocks for all tokens but those of an equal prefix, which it takes from the prefix
  // cache. False, with nothing held or reserved, if there are too few.
  bool Reserve(Sequence& sequence);
  // Takes blocks up to `positions`, the reserved ones first. False if there are too few.
  bool AllocateBlocks(Sequence& sequence, int64_t positions);
  void CancelReservation(Sequence& sequence);
  void ReleaseBlocks(Sequence& sequence);
  void PlanPrompts(int64_t rows);
  // So many more positions have their rows.
  void MoveOn(Sequence& sequence, int64_t positions);
  void StartOtherChoices(const Sequence& first);
  // REQUIRES: one is running.
  void PreemptLast();

  // What the rows of the block after the listed ones depend on. REQUIRES: the sequence lists
  // blocks.
  PrefixCache::Key KeyOf(const Sequence& sequence) const;
  // Takes blocks after the listed ones out of the prefix cache, as long as they are found.
  void FindPrefix(Sequence& sequence);
  // Lists the full blocks whose rows are written.
  void RegisterBlocks(Sequence& sequence);

  SchedulerLimits limits_;
  BlockPool& pool_;
  int64_t block_positions_;
  PrefixCache prefixes_;
  uint64_t submitted_ = 0;

  struct Live {
    std::vector<std::unique_ptr<Sequence>> choices;  // null once removed
    int64_t left = 0;
  };
  std::unordered_map<std::string, Live> requests_;
  std::map<Number, Sequence*> sequences_;
  TurnQueue queue_;  // never admitted
  // In order of admission: first those that run, then those that were preempted and the choices
  // that are not held back any more.
  std::list<Sequence*> admitted_;
  std::list<Sequence*>::iterator first_waiting_ = admitted_.end();
  int64_t running_ = 0;
  int64_t reserved_ = 0;  // blocks, to all sequences
  int64_t preemptions_ = 0;
  // The last one for whom there were too few blocks, and when: nothing has changed for it until one
  // of these has.
  struct Blocked {
    const Sequence* sequence = nullptr;
    int64_t available = 0;
    uint64_t version = 0;
  } blocked_;
  std::vector<Chunk> chunks_;  // of the last step
  // Those that compute their prompts (or, after a preemption, all their tokens) in the last step,
  // in order of admission, and how many rows.
  struct Prefill {
    Sequence* sequence;
    int64_t rows;
    int64_t left() const { return sequence->length() - sequence->computed - rows; }
  };
  std::vector<Prefill> prefills_;
  std::vector<Prefill*> shortest_first_;
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_SCHEDULER_H_
