// triptych: the command line of a Triptych server.

#include <signal.h>

#include <cstdlib>

#include "client/commands.h"

int main(int argc, char** argv) {
  // gRPC's log would break the one line that an error gets.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  // A reader that has seen enough ends the program quietly, whatever the parent process ignores.
  signal(SIGPIPE, SIG_DFL);
  return triptych::client::RunCommand({argv + 1, argv + argc});
}
