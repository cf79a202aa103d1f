#include "client/interrupts.h"

#include <unistd.h>

#include <utility>

#include "client/exit_status.h"

namespace triptych::client {
namespace {

sigset_t InterruptSignal() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  return signals;
}

}  // namespace

InterruptMask::InterruptMask() {
  const sigset_t interrupt = InterruptSignal();
  pthread_sigmask(SIG_BLOCK, &interrupt, &previous_);
}

InterruptMask::~InterruptMask() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }

Interrupts::Interrupts(std::function<void()> on_interrupt)
    : on_interrupt_(std::move(on_interrupt)), waiter_([this] { Wait(); }) {}

Interrupts::~Interrupts() {
  ending_ = true;
  pthread_kill(waiter_.native_handle(), SIGINT);
  waiter_.join();
}

void Interrupts::Wait() {
  const sigset_t interrupt = InterruptSignal();
  int signal = 0;
  while (sigwait(&interrupt, &signal) == 0 && !ending_) {
    if (interrupted_) _exit(kExitInterrupted);
    interrupted_ = true;
    on_interrupt_();
  }
}

}  // namespace triptych::client
