// The host's services over gRPC.
#ifndef TRIPTYCH_SERVER_GRPC_GRPC_SERVER_H_
#define TRIPTYCH_SERVER_GRPC_GRPC_SERVER_H_

#include <grpcpp/server.h>

#include <chrono>
#include <memory>
#include <string>

#include "server/core/model_host.h"
#include "server/grpc/inference_service.h"
#include "server/grpc/kv_cache_service.h"
#include "server/grpc/model_service.h"

namespace triptych {

// Serves from construction to Shutdown, with health checking (grpc.health.v1) and reflection.
class GrpcServer {
 public:
  // Listens on `address` (HOST:PORT; port 0 lets the system choose). Throws std::runtime_error with
  // one clear line. The host must outlive the server.
  GrpcServer(ModelHost& host, const std::string& address);
  // Ends what is left of the calls at once.
  ~GrpcServer();

  // HOST:PORT as listened on.
  const std::string& address() const { return address_; }

  // Health checks answer NOT_SERVING from now on; calls are served as before.
  void StopServing();
  // Stops listening and waits until every call has ended; cancels those left after `timeout`.
  // Called once, or not at all.
  void Shutdown(std::chrono::milliseconds timeout);

 private:
  InferenceService inference_service_;
  ModelService model_service_;
  KvCacheService kv_cache_service_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;  // null after Shutdown
};

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_GRPC_GRPC_SERVER_H_
