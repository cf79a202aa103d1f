// Queue of the texts that take long to tokenize.
#ifndef TRIPTYCH_SERVER_CORE_REQUESTS_TOKENIZATION_QUEUE_H_
#define TRIPTYCH_SERVER_CORE_REQUESTS_TOKENIZATION_QUEUE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "engine/base/mutex.h"
#include "server/core/access/byte_budget.h"
#include "server/core/error.h"
#include "server/core/worker.h"

namespace triptych::server {

// Handles tasks with long texts, or with grammars to compile, one after the other on a thread of
// its own, so that they block no thread of a transport. Clients take turns; each client's tasks are
// handled in order of arrival. Tasks with short texts are handled at once, on the caller's thread.
// Thread-safe.
class TokenizationQueue {
 public:
  // Bytes of a task's texts, which take up to a microsecond each. A task with more waits; a task
  // that takes long for another reason counts as one.
  static constexpr int64_t kMaxQuickBytes = int64_t{16} << 10;
  // Bound on the memory that all waiting tasks and the current one hold, unless tasks are larger.
  // One client may have half of it.
  static constexpr int64_t kMaxHeldBytes = int64_t{16} << 20;

  // `max_task_bytes`: the most that one task holds. The bound is at least twice that.
  explicit TokenizationQueue(int64_t max_task_bytes)
      : budget_(std::max(kMaxHeldBytes, 2 * max_task_bytes)) {}
  // Waits until all tasks have been handled.
  ~TokenizationQueue() = default;
  TokenizationQueue(const TokenizationQueue&) = delete;
  TokenizationQueue& operator=(const TokenizationQueue&) = delete;

  struct Task {
    std::string client;
    int64_t text_bytes = 0;
    int64_t held_bytes = 0;              // in memory, until it has been handled
    std::function<bool()> is_cancelled;  // asked in its turn
    // Handles the task, or refuses it with the error: TEXTS_WAITING, at once, if the bound is
    // reached; CANCELLED or DRAINING, in its turn. If it throws, or there is no memory for the task
    // to wait, it is called (again) with STEP_FAILED.
    std::function<void(const std::optional<Error>&)> handle;
  };
  void Handle(Task task) TRIPTYCH_EXCLUDES(mutex_);

  // Refuses the tasks that wait for their turn, and those that will.
  void StartDrain() { draining_ = true; }

 private:
  struct Waiting {
    Task task;
    std::unique_ptr<ByteBudget::Share> share;
  };

  // Takes the task unless it throws or refuses it.
  void Wait(Task& task) TRIPTYCH_EXCLUDES(mutex_);
  // Handles the next task.
  void TakeTurn() TRIPTYCH_EXCLUDES(mutex_);

  ByteBudget budget_;
  std::atomic<bool> draining_ = false;
  Mutex mutex_;
  std::multimap<std::string, Waiting> waiting_ TRIPTYCH_GUARDED_BY(mutex_);  // by client
  std::string last_client_ TRIPTYCH_GUARDED_BY(mutex_);                      // that had a turn
  Worker worker_;  // last: its thread uses all of the above
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_REQUESTS_TOKENIZATION_QUEUE_H_
