#ifndef TRIPTYCH_CLIENT_INTERRUPTS_H_
#define TRIPTYCH_CLIENT_INTERRUPTS_H_

#include <signal.h>

#include <atomic>
#include <functional>
#include <thread>

namespace triptych::client {

// Blocks Ctrl-C (SIGINT) in this thread, and so in the threads that it starts, gRPC's among them:
// it then waits for an Interrupts to take it. Unblocked again at the end.
class InterruptMask {
 public:
  InterruptMask();
  ~InterruptMask();
  InterruptMask(const InterruptMask&) = delete;
  InterruptMask& operator=(const InterruptMask&) = delete;

 private:
  sigset_t previous_;
};

// Takes Ctrl-C for as long as it lives: the first calls `on_interrupt` on a thread of its own,
// since a signal handler may not call gRPC; a second ends the program at once. Read input before,
// so that Ctrl-C still ends the reading. At most one at a time.
class Interrupts {
 public:
  // REQUIRES: an InterruptMask that was made before any other thread, and outlives this.
  explicit Interrupts(std::function<void()> on_interrupt);
  // `on_interrupt` is not called after it.
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Whether there has been one. Any thread may ask.
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
