#include "server/grpc/grpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>

#include <stdexcept>

namespace triptych {

GrpcServer::GrpcServer(const TransportOptions& options)
    : access_(options.access),
      gate_(access_),
      inference_service_(gate_),
      model_service_(gate_),
      kv_cache_service_(gate_) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  // Without this a second server could listen on the same port, and get half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  int port = 0;
  const std::string& address = options.listen;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&inference_service_);
  builder.RegisterService(&model_service_);
  builder.RegisterService(&kv_cache_service_);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port == 0) {
    throw std::runtime_error("--listen " + address +
                             ": cannot listen there; is the address right and the port free?");
  }
  address_ = address.substr(0, address.rfind(':') + 1) + std::to_string(port);
  SetHealth(false);
}

void GrpcServer::Serve(ModelHost& host) {
  gate_.Open(host);
  SetHealth(true);
}

void GrpcServer::SetHealth(bool serving) {
  auto* health = server_->GetHealthCheckService();
  for (const char* service :
       {"", v1::InferenceService::service_full_name(), v1::ModelService::service_full_name(),
        v1::KvCacheService::service_full_name()}) {
    health->SetServingStatus(service, serving);
  }
}

GrpcServer::~GrpcServer() {
  if (server_ != nullptr) Shutdown(std::chrono::milliseconds(0));
}

void GrpcServer::StopServing() { SetHealth(false); }

void GrpcServer::Shutdown(std::chrono::milliseconds timeout) {
  server_->Shutdown(std::chrono::system_clock::now() + timeout);
  server_->Wait();
  server_.reset();
}

}  // namespace triptych
