// Exit statuses of the command-line client.
#ifndef TRIPTYCH_CLIENT_EXIT_STATUS_H_
#define TRIPTYCH_CLIENT_EXIT_STATUS_H_

namespace triptych::client {

// Exit statuses of `triptych`.
constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;         // the call, or the output of its answer
constexpr int kExitBadUsage = 2;       // a flag or an input
constexpr int kExitInterrupted = 130;  // Ctrl-C

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_EXIT_STATUS_H_
