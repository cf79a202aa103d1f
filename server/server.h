// The server in one object: options in, running transports out.
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
class KvEventPublisher;
class SpanExporter;
struct ServerCore;

// Serves from construction until Shutdown.
class Server {
 public:
  // Listens, loads the models, logs a line for each, and serves them. Throws LoadError,
  // std::invalid_argument or std::runtime_error with a message of one line.
  explicit Server(const ServerOptions& options);
  // Calls Shutdown(0) unless Shutdown was called.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // HOST:PORT of gRPC and of HTTP, with the port in use; http_address() is empty if HTTP is off.
  const std::string& address() const { return address_; }
  const std::string& http_address() const { return http_address_; }

  // Drains: reports NOT_SERVING, refuses new requests, gives live ones `drain_timeout` to end,
  // cancels the rest, and stops listening. True if none had to be cancelled.
  bool Shutdown(std::chrono::milliseconds drain_timeout);

 private:
  MemoryGauge memory_gauge_;
  std::unique_ptr<SpanExporter> span_exporter_;  // null without tracing; outlives the core
  std::unique_ptr<ServerCore> core_;
  std::unique_ptr<AuthGate> gate_;
  // Null after Shutdown. Declared after the core, so destroyed before it.
  std::unique_ptr<GrpcServer> grpc_server_;
  std::unique_ptr<HttpServer> http_server_;               // also null if HTTP is off
  std::unique_ptr<KvEventPublisher> kv_event_publisher_;  // also null without ZeroMQ
  std::string address_;
  std::string http_address_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_SERVER_H_
