// gRPC server with all services of triptych.v1, and vllm.grpc.engine.VllmEngine.
#ifndef TRIPTYCH_SERVER_GRPC_GRPC_SERVER_H_
#define TRIPTYCH_SERVER_GRPC_GRPC_SERVER_H_

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>

#include <chrono>
#include <memory>
#include <string>

#include "server/core/access/auth_gate.h"
#include "server/core/transport_options.h"
#include "server/grpc/admin_service.h"
#include "server/grpc/inference_service.h"
#include "server/grpc/kv_cache_service.h"
#include "server/grpc/model_service.h"
#include "server/grpc/reflection_service.h"
#include "server/grpc/vllm_service.h"

namespace triptych::server {

// Listens from construction to Close, with health checking (grpc.health.v1) and reflection.
class GrpcServer {
 public:
  // Health checks answer NOT_SERVING until Serve. The gate must outlive the server. Throws
  // LoadError or std::runtime_error with a message of one line.
  GrpcServer(const TransportOptions& options, const AuthGate& gate);
  // Cancels the remaining calls.
  ~GrpcServer();

  // HOST:PORT, with the port in use.
  const std::string& address() const { return address_; }

  // Health checks answer SERVING. Call it once the gate is open.
  void Serve() { SetHealth(true); }
  // Health checks answer NOT_SERVING, new connections are refused, and clients get GOAWAY. Calls in
  // progress continue.
  void StartDrain();
  // Waits until all connections have closed; clients close them after their last call. Cancels the
  // calls left after `timeout`. Call it at most once.
  void Close(std::chrono::milliseconds timeout);

 private:
  // The drain through gRPC's C interface, which notifies when all connections have closed; the C++
  // interface starts a drain only in the call that waits for its end.
  class Drain;

  void SetHealth(bool serving);

  InferenceService inference_service_;
  ModelService model_service_;
  KvCacheService kv_cache_service_;
  AdminService admin_service_;
  VllmService vllm_service_;
  ReflectionService reflection_service_;
  std::string address_;
  std::shared_ptr<grpc::ServerCredentials> credentials_;  // used by the server throughout its life
  std::unique_ptr<grpc::Server> server_;                  // null after Close
  std::unique_ptr<Drain> drain_;                          // null before the drain
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_GRPC_SERVER_H_
