#include "engine/serving/turn_queue.h"

#include <algorithm>
#include <cassert>

namespace triptych::serving {

void TurnQueue::Push(Sequence& sequence) {
  const Request& request = *sequence.request;
  const auto client = clients_.try_emplace(request.client).first;
  sequence.turn = std::max(request.arrived, served_) + Patience(request.priority);
  client->second.requests.emplace(Key{sequence.turn, sequence.order}, &sequence);
  arrivals_.emplace(Key{request.arrived, sequence.order}, &sequence);
  ++size_;
  tokens_ += sequence.request->tokens();
  Reorder(client);
}

Sequence* TurnQueue::Front() const {
  return turns_.empty() ? nullptr : turns_.begin()->second->second.requests.begin()->second;
}

void TurnQueue::PopFront(Time now) {
  assert(!turns_.empty());
  const auto client = turns_.begin()->second;
  client->second.last_turn = served_ = now;
  Erase(client, *client->second.requests.begin()->second);
}

void TurnQueue::Remove(const Sequence& sequence) {
  const auto client = clients_.find(sequence.request->client);
  assert(client != clients_.end());
  Erase(client, sequence);
}

void TurnQueue::Erase(Clients::iterator client, const Sequence& sequence) {
  const Request& request = *sequence.request;
  [[maybe_unused]] const size_t erased =
      client->second.requests.erase({sequence.turn, sequence.order});
  assert(erased == 1);
  arrivals_.erase({request.arrived, sequence.order});
  --size_;
  tokens_ -= sequence.request->tokens();
  Reorder(client);
}

void TurnQueue::Reorder(Clients::iterator client) {
  Client& state = client->second;
  if (const auto turn = turns_.find(state.turn); turn != turns_.end() && turn->second == client) {
    turns_.erase(turn);
  }
  if (state.requests.empty()) {
    clients_.erase(client);
    return;
  }
  const auto& [first, sequence] = *state.requests.begin();
  state.turn = {std::max(first.first, state.last_turn + Patience(sequence->request->priority)),
                sequence->order};
  turns_.emplace(state.turn, client);
}

Sequence* TurnQueue::Oldest() const {
  return arrivals_.empty() ? nullptr : arrivals_.begin()->second;
}

}  // namespace triptych::serving
