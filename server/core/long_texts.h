// Texts that take long to become tokens.
#ifndef TRIPTYCH_SERVER_CORE_LONG_TEXTS_H_
#define TRIPTYCH_SERVER_CORE_LONG_TEXTS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "server/core/byte_budget.h"
#include "server/core/error.h"
#include "server/core/worker.h"

namespace triptych {

// Has calls with long texts handled one after the other on a thread of its own, in the order in
// which they come, so that they hold up no thread of a transport's that others need. Calls with
// short texts are handled at once. Thread-safe.
class LongTexts {
 public:
  // Of a call's texts together, which take up to a microsecond for each byte: more of them wait.
  static constexpr int64_t kMaxQuickBytes = int64_t{16} << 10;
  // Of all texts that wait and of the one whose turn it is: some 16 s. One client may have half of
  // it, which holds the largest message even so.
  static constexpr int64_t kMaxWaitingBytes = int64_t{16} << 20;

  explicit LongTexts(int64_t max_message_bytes)
      : budget_(std::max(kMaxWaitingBytes, 2 * max_message_bytes)) {}
  // Waits until all calls have been handled.
  ~LongTexts() = default;
  LongTexts(const LongTexts&) = delete;
  LongTexts& operator=(const LongTexts&) = delete;

  struct Call {
    std::string client;
    int64_t text_bytes = 0;
    std::function<bool()> is_cancelled;  // asked in its turn
    // Handles the call, or ends it with the error: MEMORY_PRESSURE, at once, where no more texts
    // may wait; CANCELLED or DRAINING, in its turn. If it throws it is called again, with
    // STEP_FAILED.
    std::function<void(const std::optional<Error>&)> handle;
  };
  void Handle(Call call);

  // What still waits for its turn, and what will, is refused.
  void StartDrain() { draining_ = true; }

 private:
  void TakeTurn(const Call& call) const;
  static void HandleNow(const Call& call);

  ByteBudget budget_;
  std::atomic<bool> draining_ = false;
  Worker worker_;  // last: its thread uses all of the above
};

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_CORE_LONG_TEXTS_H_
