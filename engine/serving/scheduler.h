// Decides what each step computes. Torch-free, single-threaded, without clocks or randomness: the
// same calls give the same plans.
#ifndef TRIPTYCH_ENGINE_SERVING_SCHEDULER_H_
#define TRIPTYCH_ENGINE_SERVING_SCHEDULER_H_

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/serving/sequence.h"

namespace triptych {

struct SchedulerLimits {
  int64_t max_batch_tokens = 512;  // token rows in one step
  int64_t max_running = 64;        // sequences in one step
  int64_t max_waiting = 1024;      // beyond it a submit is refused with kQueueFull
  int64_t max_positions = 0;       // the model's context
};

// Rows tokens[start, start + count) of a sequence, to be computed in one step. `samples` is true
// when they reach the sequence's last token, so that the next one can be chosen.
struct Chunk {
  Sequence* sequence;
  int64_t start;
  int64_t count;
  bool samples;
};

// Continuous batching: running sequences go first, oldest first, then waiting ones join in order
// of arrival while blocks (for all their tokens) and budget last; prompts are split into chunks
// that fit the budget. When a running sequence finds no block, the youngest running one is
// preempted: it gives up its blocks and waits at the head of the queue to be recomputed. No
// sequence is admitted in a step that preempts. A step costs O(running), however many wait.
class Scheduler {
 public:
  // The pool must outlive the scheduler.
  Scheduler(const SchedulerLimits& limits, BlockPool& pool, int64_t block_positions);

  // Takes the request in, unless the status says otherwise. The sequence's positions are checked
  // against the context and against the whole pool, so that an accepted request always finishes.
  SubmitStatus Submit(Request request, std::shared_ptr<RequestSink> sink,
                      EngineClock::time_point now);

  // The next step, with blocks reserved for it; empty when there is nothing to do. The caller
  // computes the chunks, then advances `cached` and `tokens` of each sequence. Valid until the next
  // call.
  const std::vector<Chunk>& Schedule();

  // A live sequence; null if it is not here.
  Sequence* Find(const std::string& id);

  // Takes a sequence out, finished or cancelled; null if it is not here. Its blocks go with it.
  std::unique_ptr<Sequence> Remove(const std::string& id);

  // Every live sequence, oldest arrival first.
  std::vector<const Sequence*> Sequences() const;
  int64_t running() const { return running_; }
  int64_t waiting() const { return static_cast<int64_t>(sequences_.size()) - running_; }
  int64_t preemptions() const { return preemptions_; }
  bool empty() const { return sequences_.empty(); }

 private:
  using List = std::list<std::unique_ptr<Sequence>>;

  // REQUIRES: one is running.
  void PreemptYoungest();

  SchedulerLimits limits_;
  BlockPool& pool_;
  int64_t block_positions_;
  // In order of arrival. The running ones come first: sequences join from the head of the waiting
  // ones and the youngest is preempted, so that moving first_waiting_ by one does either.
  List sequences_;
  List::iterator first_waiting_ = sequences_.end();
  std::unordered_map<std::string, List::iterator> by_id_;
  int64_t running_ = 0;
  int64_t preemptions_ = 0;
  std::vector<Chunk> chunks_;  // of the last step
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_SERVING_SCHEDULER_H_
