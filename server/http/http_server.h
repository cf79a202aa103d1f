// The host's models over HTTP, as OpenAI's clients ask for them.
#ifndef TRIPTYCH_SERVER_HTTP_HTTP_SERVER_H_
#define TRIPTYCH_SERVER_HTTP_HTTP_SERVER_H_

#include <chrono>
#include <memory>
#include <string>

#include "server/core/access/auth_gate.h"
#include "server/core/transport_options.h"

namespace triptych::server {

// Listens from construction to StartDrain or Close. One thread serves all connections.
class HttpServer {
 public:
  // Listens on `listen`, HOST:PORT or [IPV6]:PORT. Until it serves, /health says that it does not.
  // The gate must outlive the server. Throws LoadError or std::runtime_error with one clear line.
  HttpServer(const std::string& listen, const TransportOptions& options, const AuthGate& gate);
  // Ends what is left of the calls at once.
  ~HttpServer();

  // HOST:PORT as listened on.
  const std::string& address() const;

  // The gate is open.
  void Serve();
  // Nothing new is listened to, and what connections still ask is refused; calls that there are go
  // on.
  void StartDrain();
  // Closes connections as soon as their answers are sent, and those left after `timeout`. Called
  // once, or not at all.
  void Close(std::chrono::milliseconds timeout);

 private:
  class Impl;  // Asio's headers take long to compile

  const std::unique_ptr<Impl> impl_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_HTTP_SERVER_H_
