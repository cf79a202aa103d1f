// The whole server in one object.
#ifndef TRIPTYCH_SERVER_SERVER_H_
#define TRIPTYCH_SERVER_SERVER_H_

#include <chrono>
#include <memory>
#include <string>

#include "server/options.h"
#include "server/resources.h"

namespace triptych::server {

class AuthGate;
class GrpcServer;
class HttpServer;
struct ServerCore;

// Serves until Shutdown.
class Server {
 public:
  // Listens, loads the models, logs a line for each, and serves them. Throws LoadError,
  // std::invalid_argument or std::runtime_error with one clear line.
  explicit Server(const ServerOptions& options);
  // Shuts down without grace if Shutdown was not called.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // HOST:PORT as listened on; the other where HTTP is spoken, empty if nowhere.
  const std::string& address() const { return address_; }
  const std::string& http_address() const { return http_address_; }

  // Says NOT_SERVING, refuses new requests, lets the live ones end within `drain_timeout`, cancels
  // the rest, and stops listening. True if all ended by themselves.
  bool Shutdown(std::chrono::milliseconds drain_timeout);

 private:
  MemoryGauge memory_gauge_;
  std::unique_ptr<ServerCore> core_;
  std::unique_ptr<AuthGate> gate_;
  // Null after Shutdown; they die before the core that they serve.
  std::unique_ptr<GrpcServer> grpc_server_;
  std::unique_ptr<HttpServer> http_server_;  // null if HTTP is off, too
  std::string address_;
  std::string http_address_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_SERVER_H_
