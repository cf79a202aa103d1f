// Texts that take long to become tokens.
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

// Has calls with long texts handled one after the other on a thread of its own, so that they hold
// up no thread of a transport's that others need: clients take turns, and each one's calls are
// handled in the order in which they come. Calls with short texts are handled at once. Thread-safe.
class TokenizationQueue {
 public:
  // Of a call's texts together, which take up to a microsecond for each byte: more of them wait.
  static constexpr int64_t kMaxQuickBytes = int64_t{16} << 10;
  // Of what all calls hold that wait, and the one whose turn it is; more where calls are larger.
  // One client may have half of it.
  static constexpr int64_t kMaxHeldBytes = int64_t{16} << 20;

  // `max_call_bytes` is the most that one call holds: any one can wait.
  explicit TokenizationQueue(int64_t max_call_bytes)
      : budget_(std::max(kMaxHeldBytes, 2 * max_call_bytes)) {}
  // Waits until all calls have been handled.
  ~TokenizationQueue() = default;
  TokenizationQueue(const TokenizationQueue&) = delete;
  TokenizationQueue& operator=(const TokenizationQueue&) = delete;

  struct Call {
    std::string client;
    int64_t text_bytes = 0;
    int64_t held_bytes = 0;              // in memory, until it has been handled
    std::function<bool()> is_cancelled;  // asked in its turn
    // Handles the call, or ends it with the error: TEXTS_WAITING, at once, where no more may wait;
    // CANCELLED or DRAINING, in its turn. If it throws, or there is no memory for the call to wait,
    // it is called (again) with STEP_FAILED.
    std::function<void(const std::optional<Error>&)> handle;
  };
  void Handle(const Call& call) TRIPTYCH_EXCLUDES(mutex_);

  // What still waits for its turn, and what will, is refused.
  void StartDrain() { draining_ = true; }

 private:
  struct Waiting {
    Call call;
    std::unique_ptr<ByteBudget::Share> share;
  };

  void Wait(const Call& call) TRIPTYCH_EXCLUDES(mutex_);
  // Of the call that comes next.
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
