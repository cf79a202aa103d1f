#include "server/core/access/admission.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "engine/base/mutex.h"

namespace triptych::server {

class Admission::Books {
 public:
  Books(const AdmissionLimits& limits, std::function<Clock::time_point()> now)
      : limits_(limits), now_(std::move(now)) {
    if (limits.client_rate <= 0) return;
    // Token bucket as a virtual clock: a call advances the client's clock by 1 / rate seconds, and
    // the clock may run ahead of real time by 1 s, or by one call's time if that is longer.
    cost_ = std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(1 / limits.client_rate));
    burst_ = std::max(cost_, Clock::duration(std::chrono::seconds(1)));
  }

  std::optional<Error> Enter(const std::string& client, int64_t requests)
      TRIPTYCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const Clock::time_point now = now_();
    Sweep(now);
    Account& account = accounts_[client];
    if (limits_.max_client_requests > 0 && account.live > 0 &&
        account.live + requests > limits_.max_client_requests) {
      return ClientLimit(account.live, limits_.max_client_requests);
    }
    const Clock::time_point paid_until = std::max(account.paid_until, now) + cost_;
    if (paid_until - now > burst_) {
      return ClientRate(limits_.client_rate,
                        std::chrono::ceil<std::chrono::milliseconds>(paid_until - now - burst_));
    }
    account.paid_until = paid_until;
    account.live += requests;
    live_ += requests;
    return std::nullopt;
  }

  void Leave(const std::string& client, int64_t requests) TRIPTYCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto found = accounts_.find(client);
    found->second.live -= requests;
    live_ -= requests;
    if (live_ == 0) none_.NotifyAll();
    if (IsSettled(found->second, now_())) accounts_.erase(found);
  }

  int64_t live() TRIPTYCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return live_;
  }

  bool AwaitNone(Clock::time_point deadline) TRIPTYCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (live_ > 0 && none_.WaitUntil(mutex_, deadline)) {
    }
    return live_ == 0;
  }

  size_t clients() TRIPTYCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return accounts_.size();
  }

 private:
  struct Account {
    int64_t live = 0;
    Clock::time_point paid_until;  // the virtual clock; counts as now if it is in the past
  };

  static bool IsSettled(const Account& account, Clock::time_point now) {
    return account.live == 0 && account.paid_until <= now;
  }

  // Drops accounts whose last request ended before their clock had passed. Runs at most once a
  // second, so that a call pays for little more than its own account.
  void Sweep(Clock::time_point now) TRIPTYCH_REQUIRES(mutex_) {
    if (now < swept_ + std::chrono::seconds(1)) return;
    swept_ = now;
    const size_t before = accounts_.size();
    std::erase_if(accounts_, [&](const auto& entry) { return IsSettled(entry.second, now); });
    if (accounts_.size() < before / 2) accounts_.rehash(0);
  }

  const AdmissionLimits limits_;
  const std::function<Clock::time_point()> now_;
  Clock::duration cost_{0};
  Clock::duration burst_{0};
  Mutex mutex_;
  CondVar none_;
  int64_t live_ TRIPTYCH_GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::string, Account> accounts_ TRIPTYCH_GUARDED_BY(mutex_);
  Clock::time_point swept_ TRIPTYCH_GUARDED_BY(mutex_);
};

Admission::Admission(const AdmissionLimits& limits, std::function<Clock::time_point()> now)
    : books_(std::make_shared<Books>(limits, std::move(now))) {}

Result<Admission::Permit> Admission::Enter(const std::string& client, int64_t requests) {
  if (auto error = books_->Enter(client, requests)) return *std::move(error);
  return Permit(std::shared_ptr<void>(
      nullptr, [books = books_, client, requests](void*) { books->Leave(client, requests); }));
}

int64_t Admission::live() const { return books_->live(); }

bool Admission::AwaitNone(Clock::time_point deadline) const { return books_->AwaitNone(deadline); }

size_t Admission::clients() const { return books_->clients(); }

}  // namespace triptych::server
