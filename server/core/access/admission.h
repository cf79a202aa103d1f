// How much of the server one client may have.
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
  int64_t max_client_requests = 512;  // live ones of one client; 0: as many as it likes
  double client_rate = 0;             // a client's calls in a second, as many at once; 0: any
};

// Counts each client's live requests and measures its calls. What it keeps of a client is gone
// soon after the client. Thread-safe.
class Admission {
 public:
  using Clock = std::chrono::steady_clock;

  // A call's place, given back when it is destroyed, which may be after the Admission.
  class Permit {
   public:
    Permit() = default;  // of nobody
    Permit(Permit&&) = default;
    Permit& operator=(Permit&&) = default;

   private:
    friend class Admission;
    explicit Permit(std::shared_ptr<void> held) : held_(std::move(held)) {}
    std::shared_ptr<void> held_;
  };

  explicit Admission(const AdmissionLimits& limits,
                     std::function<Clock::time_point()> now = Clock::now);

  // A place for a call that makes `requests`, or CLIENT_RATE with the time until the next call may
  // come, or CLIENT_LIMIT. A client without live requests may make any number with one call.
  Result<Permit> Enter(const std::string& client, int64_t requests);

  // Requests whose calls are not over.
  int64_t live() const;
  // Waits until there are none. False if there are at the deadline.
  bool AwaitNone(Clock::time_point deadline) const;

  // Of how many clients something is kept.
  size_t clients() const;

 private:
  class Books;

  const std::shared_ptr<Books> books_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_ACCESS_ADMISSION_H_
