// triptych-server: hosts the models named on its command line until SIGTERM or Ctrl-C.
#include <pthread.h>
#include <signal.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>

#include "server/options.h"
#include "server/server.h"

int main(int argc, char** argv) {
  triptych::ServerOptions options;
  if (const auto status = triptych::ParseServerOptions(argc, argv, &options)) return *status;
  triptych::SetUpLogging(options.log_format, options.log_level);

  // Blocked here and so in every thread started later; sigwait takes them one at a time.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  try {
    triptych::Server server(options);
    int signal = 0;
    sigwait(&signals, &signal);
    spdlog::info("{}: draining for at most {} s", signal == SIGINT ? "SIGINT" : "SIGTERM",
                 static_cast<double>(options.drain_timeout.count()) / 1000);
    std::thread([signals] {
      int again = 0;
      sigwait(&signals, &again);
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
