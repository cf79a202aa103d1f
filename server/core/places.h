// A bounded number of something.
#ifndef TRIPTYCH_SERVER_CORE_PLACES_H_
#define TRIPTYCH_SERVER_CORE_PLACES_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace triptych {

// Thread-safe.
class Places {
 public:
  explicit Places(size_t most) : most_(most) {}

  // A place, given back with its last copy, which may outlive this; null if none is left.
  std::shared_ptr<void> Take() {
    auto place = std::make_shared<Place>(taken_);
    return place->number <= most_ ? place : nullptr;
  }

 private:
  using Count = std::shared_ptr<std::atomic<size_t>>;

  struct Place {
    explicit Place(Count taken_in) : taken(std::move(taken_in)), number(++*taken) {}
    ~Place() { --*taken; }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    const Count taken;
    const size_t number;
  };

  const size_t most_;
  const Count taken_ = std::make_shared<std::atomic<size_t>>(0);
};

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_CORE_PLACES_H_
