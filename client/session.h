// Client with cancellation by Ctrl-C.
#ifndef TRIPTYCH_CLIENT_SESSION_H_
#define TRIPTYCH_CLIENT_SESSION_H_

#include <stdexcept>
#include <string>

#include "client/client.h"
#include "client/interrupts.h"
#include "client/server_flags.h"

namespace triptych::client {

// Ends the program with exit status 1 and prints what() in one line.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Ends the program without a message, after Ctrl-C.
struct Interrupted {};

// A client whose calls Ctrl-C cancels; a second Ctrl-C ends the program at once. As with
// Interrupts, at most one exists at a time, and input is read before it is constructed.
class Session {
 public:
  explicit Session(const ServerFlags& server) : Session(ReadConnection(server)) {}
  explicit Session(const Connection& connection);

  Client& client() { return client_; }

  // Throws Interrupted if the call failed after Ctrl-C, and Failure if it failed otherwise.
  void Check(const grpc::Status& status) const;

 private:
  const std::string address_;
  InterruptMask mask_;
  Client client_;
  Interrupts interrupts_;
};

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_SESSION_H_
