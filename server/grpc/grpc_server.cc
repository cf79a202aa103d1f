#include "server/grpc/grpc_server.h"

#include <google/protobuf/stubs/logging.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>

#include <stdexcept>

namespace triptych {

GrpcServer::GrpcServer(ModelHost& host, const std::string& address)
    : inference_service_(host), model_service_(host), kv_cache_service_(host) {
  // Protobuf would tell standard error of each message of a client that is no UTF-8.
  google::protobuf::SetLogHandler(nullptr);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  // Without this a second server could listen on the same port, and get half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  int port = 0;
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
  auto* health = server_->GetHealthCheckService();
  for (const char* service :
       {v1::InferenceService::service_full_name(), v1::ModelService::service_full_name(),
        v1::KvCacheService::service_full_name()}) {
    health->SetServingStatus(service, true);
  }
}

GrpcServer::~GrpcServer() {
  if (server_ != nullptr) Shutdown(std::chrono::milliseconds(0));
}

void GrpcServer::StopServing() { server_->GetHealthCheckService()->SetServingStatus(false); }

void GrpcServer::Shutdown(std::chrono::milliseconds timeout) {
  server_->Shutdown(std::chrono::system_clock::now() + timeout);
  server_->Wait();
  server_.reset();
}

}  // namespace triptych
