#include "server/core/requests/tokenization_queue.h"

#include <spdlog/spdlog.h>

#include <exception>
#include <utility>

namespace triptych::server {
namespace {

// Whatever `function` throws fails the call.
template <typename Function>
void Guard(const TokenizationQueue::Call& call, const Function& function) {
  try {
    function();
  } catch (const std::exception& e) {  // such as std::bad_alloc
    spdlog::error("a request fails: {}", e.what());
    call.handle(Internal("the request could not be handled"));
  }
}

}  // namespace

void TokenizationQueue::Handle(const Call& call) {
  Guard(call, [&] {
    if (call.text_bytes <= kMaxQuickBytes) {
      call.handle(std::nullopt);
    } else {
      Wait(call);
    }
  });
}

void TokenizationQueue::Wait(const Call& call) {
  auto share = std::make_unique<ByteBudget::Share>(budget_, call.client);
  if (!share->Hold(call.held_bytes)) return call.handle(TextsWaiting());
  Waiting waiting{call, std::move(share)};
  const MutexLock lock(mutex_);
  // As many turns as calls. First: if the call cannot be put down after it, there is a turn too
  // many, which does no harm.
  worker_.Post([this] { TakeTurn(); });
  waiting_.emplace(call.client, std::move(waiting));
}

void TokenizationQueue::TakeTurn() {
  std::multimap<std::string, Waiting>::node_type turn;
  {
    const MutexLock lock(mutex_);
    if (waiting_.empty()) return;
    auto next = waiting_.upper_bound(last_client_);
    if (next == waiting_.end()) next = waiting_.begin();
    turn = waiting_.extract(next);
    last_client_.swap(turn.key());
  }
  const Call& call = turn.mapped().call;
  Guard(call, [&] {
    if (call.is_cancelled()) {
      call.handle(Cancelled());
    } else if (draining_) {
      call.handle(Draining());
    } else {
      call.handle(std::nullopt);
    }
  });
}

}  // namespace triptych::server
