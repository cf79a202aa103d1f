// Mailbox of the HTTP server's I/O thread.
#ifndef TRIPTYCH_SERVER_HTTP_MAILBOX_H_
#define TRIPTYCH_SERVER_HTTP_MAILBOX_H_

#include <functional>
#include <utility>

#include "engine/base/mutex.h"

namespace triptych::server {

// Runs posted tasks on the I/O thread, and drops them after Close: engines may still report on
// requests whose connections have been closed. Thread-safe.
class Mailbox {
 public:
  using Task = std::function<void()>;

  explicit Mailbox(std::function<void(Task)> post) : post_(std::move(post)) {}

  void Post(Task task) TRIPTYCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (post_) post_(std::move(task));
  }
  void Close() TRIPTYCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    post_ = nullptr;
  }

 private:
  Mutex mutex_;
  std::function<void(Task)> post_ TRIPTYCH_GUARDED_BY(mutex_);
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_MAILBOX_H_
