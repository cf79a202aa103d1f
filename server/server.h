// The whole server in one object.
#ifndef TRIPTYCH_SERVER_SERVER_H_
#define TRIPTYCH_SERVER_SERVER_H_

#include <chrono>
#include <memory>
#include <string>

#include "server/options.h"
#include "server/resources.h"

namespace triptych {

class GrpcServer;
class ModelHost;

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

  // HOST:PORT as listened on.
  const std::string& address() const { return address_; }

  // Says NOT_SERVING, refuses new requests, lets the live ones end within `drain_timeout`, cancels
  // the rest, and stops listening. True if all ended by themselves.
  bool Shutdown(std::chrono::milliseconds drain_timeout);

 private:
  MemoryGauge memory_gauge_;
  std::unique_ptr<ModelHost> host_;
  std::unique_ptr<GrpcServer> grpc_server_;  // null after Shutdown; dies before the host it serves
  std::string address_;
};

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_SERVER_H_
