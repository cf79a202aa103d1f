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
static_assert(std::atomic<int>::is_always_lock_free);

void TakeSignal(int signal) {
  const int saved_errno = errno;
  last_signal = signal;
  sem_post(&signals_taken);
  errno = saved_errno;
}

void AwaitSignal() {
  while (sem_wait(&signals_taken) != 0) {  // interrupted by the handler itself
  }
}

}  // namespace

int main(int argc, char** argv) {
  // gRPC's own log would break the one line that an error gets.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  triptych::ServerOptions options;
  if (const auto status = triptych::ParseServerOptions(argc, argv, &options)) return *status;
  triptych::SetUpLogging(options.log_format, options.log_level);

  sem_init(&signals_taken, /*pshared=*/0, /*value=*/0);
  struct sigaction action {};
  action.sa_handler = TakeSignal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);

  try {
    triptych::Server server(options);
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
    std::fprintf(stderr, "triptych-server: %s\n", e.what());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
