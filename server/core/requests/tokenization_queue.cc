#include "server/core/requests/tokenization_queue.h"

#include <exception>
#include <utility>

#include "server/core/log.h"

namespace triptych::server {
namespace {

// Refuses the task with STEP_FAILED if `function` throws.
template <typename Function>
void Guard(const TokenizationQueue::Task& task, const Function& function) {
  try {
    function();
  } catch (const std::exception& e) {  // such as std::bad_alloc
    LogError("a request fails: {}", e.what());
    task.handle(Internal("the request could not be handled"));
  }
}

}  // namespace

void TokenizationQueue::Handle(Task task) {
  Guard(task, [&] {
    if (task.text_bytes <= kMaxQuickBytes) {
      task.handle(std::nullopt);
    } else {
      Wait(task);
    }
  });
}

void TokenizationQueue::Wait(Task& task) {
  auto share = std::make_unique<ByteBudget::Share>(budget_, task.client);
  if (!share->Hold(task.held_bytes)) return task.handle(TextsWaiting());
  const MutexLock lock(mutex_);
  // One turn for each task. The turn first: if the task cannot be put down after it, the turn finds
  // no task, which is harmless.
  worker_.Post([this] { TakeTurn(); });
  Waiting& waiting = waiting_.emplace(task.client, Waiting())->second;
  waiting.task = std::move(task);  // throws nothing
  waiting.share = std::move(share);
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
  const Task& task = turn.mapped().task;
  Guard(task, [&] {
    if (task.is_cancelled()) {
      task.handle(Cancelled());
    } else if (draining_) {
      task.handle(Draining());
    } else {
      task.handle(std::nullopt);
    }
  });
}

}  // namespace triptych::server
