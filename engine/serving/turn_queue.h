// Who of those that wait goes first. Torch-free, single-threaded, without a clock of its own.
#ifndef TRIPTYCH_ENGINE_SERVING_TURN_QUEUE_H_
#define TRIPTYCH_ENGINE_SERVING_TURN_QUEUE_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "engine/serving/sequence.h"

namespace triptych::serving {

// How long a request lets pass those that arrive after it and have less patience.
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

// Clients take turns. A client's first request is the one that has the least of arrival plus
// patience; a client's turn comes at the later of that request's arrival and the client's last
// turn, plus the patience. The client whose turn comes first is served first. What was on its way
// here when somebody was served counts as having arrived then, so that it overtakes nobody who was
// passed over for that one.
//
// So nobody starves: once a request is its client's first, it is overtaken by others' requests for
// as long as its patience at most (what arrives later, or is of a client served later, has a later
// turn), and after that by one request of each other client at most.
class TurnQueue {
 public:
  using Time = EngineClock::time_point;

  void Push(Sequence& sequence);
  // The next to be served; null if there is none.
  Sequence* Front() const;
  // Takes the front out, because it is served.
  void PopFront(Time now);
  // Takes one out that is served no more. REQUIRES: it is here.
  void Remove(const Sequence& sequence);

  int64_t size() const { return size_; }             // requests
  int64_t prompt_tokens() const { return tokens_; }  // of all their prompts
  // The one that arrived first; null if there is none.
  Sequence* Oldest() const;

 private:
  // Ties go to what was submitted first.
  using Key = std::pair<Time, uint64_t>;
  struct Client {
    std::map<Key, Sequence*> requests;  // by arrival plus patience
    Time last_turn = Time::min();
    Key turn;  // as in turns_
  };
  using Clients = std::map<std::string, Client>;

  void Erase(Clients::iterator client, const Sequence& sequence);
  // Puts the client's turn anew after its requests or its last turn changed.
  void Reorder(Clients::iterator client);

  Clients clients_;  // with requests
  std::map<Key, Clients::iterator> turns_;
  std::map<Key, Sequence*> arrivals_;
  Time served_ = Time::min();  // when somebody was, last
  int64_t size_ = 0, tokens_ = 0;
};

}  // namespace triptych::serving

#endif  // TRIPTYCH_ENGINE_SERVING_TURN_QUEUE_H_
