// Per-client limits of live requests and of request rate.
#ifndef TRIPTYCH_SERVER_CORE_ACCESS_ADMISSION_H_
#define TRIPTYCH_SERVER_CORE_ACCESS_ADMISSION_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "server/core/error.h"

namespace triptych::server {

struct AdmissionLimits {
  int64_t max_client_requests = 512;  // live requests of one client; 0: unlimited
  double client_rate = 0;             // calls per second of one client, and its burst; 0: unlimited
};

// Counts each client's live requests and limits its call rate. Forgets a client without live
// requests once its rate has recovered. Thread-safe.
class Admission {
 public:
  using Clock = std::chrono::steady_clock;

  // A call's admission, released on destruction, which may be after the Admission's.
  class Permit {
   public:
    Permit() = default;  // of no call
    Permit(Permit&&) = default;
    Permit& operator=(Permit&&) = default;

   private:
    friend class Admission;
    explicit Permit(std::shared_ptr<void> held) : held_(std::move(held)) {}
    std::shared_ptr<void> held_;
  };

  explicit Admission(const AdmissionLimits& limits,
                     std::function<Clock::time_point()> now = Clock::now);

  // Admits a call with `requests` requests. Otherwise CLIENT_LIMIT, or CLIENT_RATE with the delay
  // until the next call is allowed. A client without live requests may start any number in one
  // call.
  Result<Permit> Enter(const std::string& client, int64_t requests);

  // Requests of calls whose permits are held.
  int64_t live() const;
  // Waits until live() is 0. False if it is not by the deadline.
  bool AwaitNone(Clock::time_point deadline) const;

  // Number of clients with an account.
  size_t clients() const;

 private:
  class Books;

  const std::shared_ptr<Books> books_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_ACCESS_ADMISSION_H_
