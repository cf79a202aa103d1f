// Handling of Ctrl-C.
#ifndef TRIPTYCH_CLIENT_INTERRUPTS_H_
#define TRIPTYCH_CLIENT_INTERRUPTS_H_

#include <signal.h>

#include <atomic>
#include <functional>
#include <thread>

namespace triptych::client {

// Blocks Ctrl-C (SIGINT) in this thread and in the threads that it starts, such as gRPC's, so that
// only an Interrupts receives it. The destructor restores the previous mask.
class InterruptMask {
 public:
  InterruptMask();
  ~InterruptMask();
  InterruptMask(const InterruptMask&) = delete;
  InterruptMask& operator=(const InterruptMask&) = delete;

 private:
  sigset_t previous_;
};

// Receives Ctrl-C during its lifetime. The first one calls `on_interrupt` on a separate thread,
// since a signal handler may not call gRPC; a second one ends the program at once. Read input
// before constructing this, so that Ctrl-C can end the reading. At most one exists at a time.
class Interrupts {
 public:
  // REQUIRES: an InterruptMask that was constructed before any other thread and outlives this.
  explicit Interrupts(std::function<void()> on_interrupt);
  // `on_interrupt` is not called afterwards.
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // True after a Ctrl-C. Callable from any thread.
  bool interrupted() const { return interrupted_; }

 private:
  void Wait();

  const std::function<void()> on_interrupt_;
  std::atomic<bool> interrupted_ = false;
  std::atomic<bool> ending_ = false;
  std::thread waiter_;
};

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_INTERRUPTS_H_
