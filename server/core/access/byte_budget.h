// Memory budget of a transport's requests and responses.
#ifndef TRIPTYCH_SERVER_CORE_ACCESS_BYTE_BUDGET_H_
#define TRIPTYCH_SERVER_CORE_ACCESS_BYTE_BUDGET_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "engine/base/mutex.h"

namespace triptych::server {

// A number of bytes that clients share; one client can hold at most half. Must outlive its shares.
// Thread-safe.
class ByteBudget {
 public:
  explicit ByteBudget(int64_t bytes) : of_one_client_(bytes / 2), left_(bytes) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  // The bytes held for one purpose of a client; released on destruction. Not thread-safe.
  class Share {
   public:
    Share(ByteBudget& budget, std::string client) : budget_(budget), client_(std::move(client)) {}
    ~Share() { Hold(0); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // Holds `bytes` in place of held(). False, without effect, if that is more and does not fit in
    // the budget or in the client's half. Holding less always succeeds and allocates nothing.
    bool Hold(int64_t bytes) {
      if (bytes == held_) return true;
      if (!budget_.Take(client_, bytes - held_)) return false;
      held_ = bytes;
      return true;
    }
    int64_t held() const { return held_; }

   private:
    ByteBudget& budget_;
    const std::string client_;
    int64_t held_ = 0;
  };

 private:
  bool Take(const std::string& client, int64_t bytes) TRIPTYCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto taken = taken_.try_emplace(client, 0).first;
    const bool fits = bytes <= 0 || (bytes <= left_ && taken->second + bytes <= of_one_client_);
    if (fits) {
      left_ -= bytes;
      taken->second += bytes;
    }
    if (taken->second == 0) taken_.erase(taken);
    return fits;
  }

  const int64_t of_one_client_;
  Mutex mutex_;
  int64_t left_ TRIPTYCH_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> taken_ TRIPTYCH_GUARDED_BY(mutex_);  // by client, above 0
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_ACCESS_BYTE_BUDGET_H_
