// Fair queue of requests that were never admitted.
//
// Single-threaded; has no clock of its own.
#ifndef TRIPTYCH_ENGINE_SERVING_TURN_QUEUE_H_
#define TRIPTYCH_ENGINE_SERVING_TURN_QUEUE_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "engine/serving/sequence.h"

namespace triptych::serving {

// How long a request yields to later requests with less patience.
constexpr std::chrono::seconds Patience(Priority priority) {
  switch (priority) {
    case Priority::kHigh:
      return std::chrono::seconds(0);
    case Priority::kNormal:
      return std::chrono::seconds(10);
    case Priority::kLow:
      return std::chrono::seconds(60);
  }
  return {};
}

// Clients take turns. A client's first request is the one with the least arrival time plus
// patience. The client's turn is the later of that request's arrival and the client's last turn,
// plus the request's patience. The client with the earliest turn is served first. A request pushed
// after its arrival counts as having arrived no earlier than the last PopFront, so that it does not
// overtake requests that were passed over then.
//
// No request starves. Once it is its client's first, requests of others overtake it for at most its
// patience: later arrivals, and requests of clients served later, have later turns. After that, at
// most one request of each other client overtakes it.
class TurnQueue {
 public:
  using Time = EngineClock::time_point;

  void Push(Sequence& sequence);
  // The request to serve next; null if there is none.
  Sequence* Front() const;
  // Removes the front, which is served at `now`.
  void PopFront(Time now);
  // Removes a request that will not be served. REQUIRES: it is in the queue.
  void Remove(const Sequence& sequence);

  int64_t size() const { return size_; }      // requests
  int64_t tokens() const { return tokens_; }  // of all their prompts and predictions
  // The request that arrived first; null if there is none.
  Sequence* Oldest() const;

 private:
  // Ties go to the request submitted first.
  using Key = std::pair<Time, uint64_t>;
  struct Client {
    std::map<Key, Sequence*> requests;  // by arrival plus patience
    Time last_turn = Time::min();
    Key turn;  // as in turns_
  };
  using Clients = std::map<std::string, Client>;

  void Erase(Clients::iterator client, const Sequence& sequence);
  // Updates the client's turn after its requests or its last turn changed.
  void Reorder(Clients::iterator client);

  Clients clients_;  // only those with requests
  std::map<Key, Clients::iterator> turns_;
  std::map<Key, Sequence*> arrivals_;
  Time served_ = Time::min();  // time of the last PopFront
  int64_t size_ = 0, tokens_ = 0;
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_TURN_QUEUE_H_
