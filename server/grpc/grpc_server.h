// The host's services over gRPC.
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

namespace triptych::server {

// Listens from construction to Close, with health checking (grpc.health.v1) and reflection.
class GrpcServer {
 public:
  // Until it serves, health checks answer NOT_SERVING. The gate must outlive the server. Throws
  // LoadError or std::runtime_error with one clear line.
  GrpcServer(const TransportOptions& options, const AuthGate& gate);
  // Ends what is left of the calls at once.
  ~GrpcServer();

  // HOST:PORT as listened on.
  const std::string& address() const { return address_; }

  // The gate is open.
  void Serve() { SetHealth(true); }
  // Health checks answer NOT_SERVING, nothing new is listened to, and clients are told to go
  // elsewhere (GOAWAY); calls that there are go on.
  void StartDrain();
  // Waits until every connection has closed, as clients' do that have no more calls; closes those
  // left after `timeout`. Called once, or not at all.
  void Close(std::chrono::milliseconds timeout);

 private:
  // gRPC says here, in its C interface, that every connection has closed: its C++ interface waits
  // for that where it is asked to drain.
  class Drain;

  void SetHealth(bool serving);

  InferenceService inference_service_;
  ModelService model_service_;
  KvCacheService kv_cache_service_;
  AdminService admin_service_;
  ReflectionService reflection_service_;
  std::string address_;
  std::shared_ptr<grpc::ServerCredentials> credentials_;  // which the server asks while it lives
  std::unique_ptr<grpc::Server> server_;                  // null after Close
  std::unique_ptr<Drain> drain_;                          // once it has started
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_GRPC_SERVER_H_
