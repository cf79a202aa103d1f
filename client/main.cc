// triptych: the command-line client of a Triptych server.

#include <signal.h>

#include <cstdlib>

#include "client/commands.h"

int main(int argc, char** argv) {
  // gRPC's log would break an error's single line.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  // A closed pipe ends the program quietly, even if the parent process ignores SIGPIPE.
  signal(SIGPIPE, SIG_DFL);
  return triptych::client::RunCommand({argv + 1, argv + argc});
}
