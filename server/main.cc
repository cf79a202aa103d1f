// triptych-server: serves the models named by its options until SIGTERM or Ctrl-C.
#include <semaphore.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <thread>

#include "server/core/log.h"
#include "server/options.h"
#include "server/server.h"

namespace {

using triptych::server::Log;
using triptych::server::LogInfo;
using triptych::server::LogWarning;

// Signals have a handler instead of a sigwait: a BLAS starts threads before main that block no
// signal, and the default action in one of them would end the process.
sem_t first_signal, second_signals;
std::atomic<int> signals = 0;
std::atomic<int> last_signal = 0;  // 0: none yet
std::atomic<bool> listens = false;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void TakeSignal(int signal) {
  // Nothing to drain yet. As PID 1 of a container the process has no default action, so it exits.
  if (!listens) _exit(128 + signal);
  const int saved_errno = errno;
  last_signal = signal;
  sem_post(signals++ == 0 ? &first_signal : &second_signals);
  errno = saved_errno;
}

std::atomic<int64_t> asked_drain_ms = -1;  // negative: --drain-timeout

// Starts a drain, as the first signal does. Has no effect on a drain that has begun.
void Drain(std::optional<std::chrono::milliseconds> timeout, const std::string& client) {
  int none = 0;
  if (!signals.compare_exchange_strong(none, 1)) return;
  LogInfo("client {} requested a drain", client);
  if (timeout) asked_drain_ms = timeout->count();
  sem_post(&first_signal);
}

std::atomic<bool> device_is_lost = false;

// Cancels the requests and ends the process with a failure, so that a supervisor restarts it.
void EndAfterDeviceLoss(const std::string& error) {
  Log(spdlog::level::critical, "{}; stopping", error);
  device_is_lost = true;
  asked_drain_ms = 0;
  sem_post(&first_signal);
}

void AwaitSignal(sem_t& taken) {
  while (sem_wait(&taken) != 0) {  // EINTR by the handler itself
  }
}

// Each connection takes a descriptor, and gRPC 1.51 stops listening for good once it is refused
// one.
void RaiseDescriptorLimit() {
  struct rlimit limit {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Serves until the first signal, then drains. True if all requests ended within the drain timeout.
// The server's last line is logged when this returns.
bool ServeUntilSignalled(const triptych::server::ServerOptions& options) {
  triptych::server::Server server(options);
  listens = true;
  if (!server.http_address().empty()) LogInfo("HTTP on {}", server.http_address());
  LogInfo("listening on {}", server.address());  // a signal after this line drains
  AwaitSignal(first_signal);
  const int64_t asked = asked_drain_ms;
  const auto timeout = asked >= 0 ? std::chrono::milliseconds(asked) : options.drain_timeout;
  const char* cause = device_is_lost           ? "a lost device"
                      : last_signal == SIGINT  ? "SIGINT"
                      : last_signal == SIGTERM ? "SIGTERM"
                                               : "AdminService.Drain";
  LogInfo("{}: draining for at most {} s", cause, static_cast<double>(timeout.count()) / 1000);
  return server.Shutdown(timeout);
}

int Fail(const char* error) {
  std::fprintf(stderr, "triptych-server: %s\n", error);
  return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  for (sem_t* taken : {&first_signal, &second_signals}) {
    sem_init(taken, /*pshared=*/0, /*value=*/0);
  }
  struct sigaction action {};
  action.sa_handler = TakeSignal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  // The log's reader may end first: `triptych-server | tee log` at Ctrl-C.
  signal(SIGPIPE, SIG_IGN);

  triptych::server::ServerOptions options;
  if (const auto status = triptych::server::ParseServerOptions(argc, argv, &options))
    return *status;
  triptych::server::SetUpLogging(options.log_format, options.log_level);
  RaiseDescriptorLimit();

  try {
    // Started before clients can connect: later the system may be at its limit of threads.
    std::thread second_signal([] {
      AwaitSignal(second_signals);
      LogWarning("a second signal: stopping at once");
      spdlog::default_logger()->flush();
      _exit(EXIT_FAILURE);
    });
    second_signal.detach();
    options.transport.request_drain = Drain;
    options.transport.device_lost = EndAfterDeviceLoss;
    const bool drained = ServeUntilSignalled(options);
    if (device_is_lost) return EXIT_FAILURE;
    if (drained) {
      LogInfo("drained; bye");
    } else {
      LogWarning("requests still live after the drain timeout were cancelled");
    }
  } catch (const std::exception& e) {
    return Fail(e.what());
  }
  return EXIT_SUCCESS;
}
