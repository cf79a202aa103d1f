#include "client/session.h"

#include <unistd.h>

#include "client/exit_status.h"
#include "client/status_text.h"

namespace triptych::client {
namespace {

sigset_t InterruptSignal() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  return signals;
}

// Returns the signals blocked before.
sigset_t BlockInterrupts() {
  const sigset_t interrupt = InterruptSignal();
  sigset_t previous;
  pthread_sigmask(SIG_BLOCK, &interrupt, &previous);
  return previous;
}

}  // namespace

Session::Session(const ServerFlags& server)
    : address_(server.address),
      previous_signals_(BlockInterrupts()),
      client_(Connect(server.address), server.timeout),
      waiter_([this] { WaitForInterrupts(); }) {}

Session::~Session() {
  ending_ = true;
  pthread_kill(waiter_.native_handle(), SIGINT);
  waiter_.join();
  pthread_sigmask(SIG_SETMASK, &previous_signals_, nullptr);
}

void Session::WaitForInterrupts() {
  const sigset_t interrupt = InterruptSignal();
  int signal = 0;
  while (sigwait(&interrupt, &signal) == 0 && !ending_) {
    if (interrupted_) _exit(kExitInterrupted);
    interrupted_ = true;
    client_.Cancel();
  }
}

void Session::Check(const grpc::Status& status) const {
  if (status.ok()) return;
  if (interrupted_) throw Interrupted();
  throw Failure(DescribeStatus(status, address_));
}

}  // namespace triptych::client
