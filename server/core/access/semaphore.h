// Counting semaphore whose permits may outlive it.
#ifndef TRIPTYCH_SERVER_CORE_ACCESS_SEMAPHORE_H_
#define TRIPTYCH_SERVER_CORE_ACCESS_SEMAPHORE_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace triptych::server {

// Hands out at most `most` permits at a time. Thread-safe.
class Semaphore {
 public:
  explicit Semaphore(size_t most) : most_(most) {}

  // A permit, released with its last copy; null if none is left.
  std::shared_ptr<void> Take() {
    auto place = std::make_shared<Permit>(taken_);
    return place->number <= most_ ? place : nullptr;
  }

 private:
  using Count = std::shared_ptr<std::atomic<size_t>>;

  struct Permit {
    explicit Permit(Count taken_in) : taken(std::move(taken_in)), number(++*taken) {}
    ~Permit() { --*taken; }
    Permit(const Permit&) = delete;
    Permit& operator=(const Permit&) = delete;

    const Count taken;
    const size_t number;
  };

  const size_t most_;
  const Count taken_ = std::make_shared<std::atomic<size_t>>(0);
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_ACCESS_SEMAPHORE_H_
