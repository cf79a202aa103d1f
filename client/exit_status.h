#ifndef TRIPTYCH_CLIENT_EXIT_STATUS_H_
#define TRIPTYCH_CLIENT_EXIT_STATUS_H_

namespace triptych::client {

// The exit statuses of `triptych`.
constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;         // The call, or writing its answer.
constexpr int kExitBadUsage = 2;       // A flag or an input.
constexpr int kExitInterrupted = 130;  // Ctrl-C.

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_EXIT_STATUS_H_
