// triptych-server: hosts the models named on its command line until SIGTERM or Ctrl-C.
#include <semaphore.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>

#include "server/options.h"
#include "server/server.h"

namespace {

// Signals are handled and not waited for by sigwait: a BLAS starts threads before main that block
// none, and one that came while nobody waits would end the process through those.
sem_t signals_taken;
std::atomic<int> last_signal = 0;
std::atomic<bool> listens = false;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void TakeSignal(int signal) {
  // Nothing to drain yet. The default action would do, but a container's first process has none.
  if (!listens) _exit(128 + signal);
  const int saved_errno = errno;
  last_signal = signal;
  sem_post(&signals_taken);
  errno = saved_errno;
}

void AwaitSignal() {
  while (sem_wait(&signals_taken) != 0) {  // interrupted by the handler itself
  }
}

int Fail(const char* error) {
  std::fprintf(stderr, "triptych-server: %s\n", error);
  return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  sem_init(&signals_taken, /*pshared=*/0, /*value=*/0);
  struct sigaction action {};
  action.sa_handler = TakeSignal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  // Whoever reads the log may end first: `triptych-server | tee log` at Ctrl-C.
  signal(SIGPIPE, SIG_IGN);

  // gRPC's own log would break the one line that an error gets.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  triptych::ServerOptions options;
  if (const auto status = triptych::ParseServerOptions(argc, argv, &options)) return *status;
  triptych::SetUpLogging(options.log_format, options.log_level);

  try {
    triptych::Server server(options);
    listens = true;
    spdlog::info("listening on {}", server.address());  // whoever has read it can have it drained
    AwaitSignal();
    spdlog::info("{}: draining for at most {} s", last_signal == SIGINT ? "SIGINT" : "SIGTERM",
                 static_cast<double>(options.drain_timeout.count()) / 1000);
    std::thread([] {
      AwaitSignal();
      spdlog::warn("a second signal: stopping at once");
      spdlog::default_logger()->flush();
      _exit(EXIT_FAILURE);
    }).detach();
    if (server.Shutdown(options.drain_timeout)) {
      spdlog::info("drained; bye");
    } else {
      spdlog::warn("requests still live after the drain timeout were cancelled");
    }
  } catch (const std::exception& e) {
    return Fail(e.what());
  }
  return EXIT_SUCCESS;
}
