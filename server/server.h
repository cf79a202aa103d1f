// The whole server in one object.
#ifndef TRIPTYCH_SERVER_SERVER_H_
#define TRIPTYCH_SERVER_SERVER_H_

#include <grpcpp/server.h>

#include <chrono>
#include <memory>
#include <string>

#include "server/inference_service.h"
#include "server/kv_cache_service.h"
#include "server/model_registry.h"
#include "server/model_service.h"
#include "server/options.h"

namespace triptych {

// Serves from construction to Shutdown, with health checking (grpc.health.v1) and reflection.
class Server {
 public:
  // Loads the models, logs a line for each, and listens. Throws LoadError, std::invalid_argument
  // or std::runtime_error with one clear line.
  explicit Server(const ServerOptions& options);
  // Shuts down without grace if Shutdown was not called.
  ~Server();

  // HOST:PORT as listened on.
  const std::string& address() const { return address_; }
  // For clients in the same process.
  std::shared_ptr<grpc::Channel> InProcessChannel() {
    return grpc_server_->InProcessChannel(grpc::ChannelArguments());
  }

  // Says NOT_SERVING, refuses new requests, lets the live ones end within `drain_timeout`, cancels
  // the rest, and stops listening. True if all ended by themselves.
  bool Shutdown(std::chrono::milliseconds drain_timeout);

 private:
  ModelRegistry registry_;
  InferenceService inference_service_{registry_};
  ModelService model_service_{registry_};
  KvCacheService kv_cache_service_{registry_};
  std::string address_;
  std::unique_ptr<grpc::Server> grpc_server_;
};

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_SERVER_H_
