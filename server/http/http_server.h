// HTTP server with OpenAI's API.
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
  // Listens on `listen`, HOST:PORT or [IPV6]:PORT. /health answers 503 until Serve. The gate must
  // outlive the server. Throws LoadError or std::runtime_error with a message of one line.
  HttpServer(const std::string& listen, const TransportOptions& options, const AuthGate& gate);
  // Cancels the remaining calls.
  ~HttpServer();

  // HOST:PORT, with the port in use.
  const std::string& address() const;

  // /health answers 200. Call it once the gate is open.
  void Serve();
  // Refuses new connections, and new requests that need a scope other than statistics. Calls in
  // progress continue.
  void StartDrain();
  // Closes each connection after its response, and those left after `timeout`. Call it at most
  // once.
  void Close(std::chrono::milliseconds timeout);

 private:
  class Impl;  // hides Asio's headers, which are slow to compile

  const std::unique_ptr<Impl> impl_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_HTTP_SERVER_H_
