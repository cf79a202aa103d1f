#ifndef TRIPTYCH_CLIENT_SESSION_H_
#define TRIPTYCH_CLIENT_SESSION_H_

#include <signal.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "client/client.h"

namespace triptych::client {

// Ends the program with exit status 1, and what() in one line.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Ends the program quietly, as Ctrl-C does.
struct Interrupted {};

struct ServerFlags {
  std::string address = "127.0.0.1:50051";
  std::optional<std::chrono::milliseconds> timeout;
};

// A client whose calls Ctrl-C (SIGINT) cancels; a second Ctrl-C ends the program at once.
//
// SIGINT is blocked in the constructing thread, and so in the threads it starts, until the session
// ends: a thread of the session's waits for it, since a signal handler may not call gRPC. Read
// input before, so that Ctrl-C still ends the reading. At most one at a time.
class Session {
 public:
  explicit Session(const ServerFlags& server);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Client& client() { return client_; }

  // Throws Interrupted if the call failed after Ctrl-C, and Failure if it failed otherwise.
  void Check(const grpc::Status& status) const;

 private:
  void WaitForInterrupts();

  const std::string address_;
  const sigset_t previous_signals_;
  Client client_;
  std::atomic<bool> interrupted_ = false;
  std::atomic<bool> ending_ = false;
  std::thread waiter_;
};

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_SESSION_H_
