#include "server/grpc/grpc_server.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/grpc.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>

#include <stdexcept>
#include <vector>

#include "grpc/health/v1/health.grpc.pb.h"
#include "server/grpc/grpc_log.h"
#include "server/grpc/tls_credentials.h"

namespace triptych::server {
namespace {

// Services with a health status of their own.
std::vector<std::string> OwnServices() {
  return {v1::AdminService::service_full_name(), v1::InferenceService::service_full_name(),
          v1::KvCacheService::service_full_name(), v1::ModelService::service_full_name(),
          vllm_wire::VllmEngine::service_full_name()};
}

std::vector<std::string> AllServices() {
  std::vector<std::string> services = OwnServices();
  services.push_back(grpc::health::v1::Health::service_full_name());
  services.push_back(grpc::reflection::v1alpha::ServerReflection::service_full_name());
  return services;
}

void SetLimits(const TransportLimits& limits, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(limits.max_message_bytes));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.max_streams);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, limits.max_metadata_bytes);
  const auto set_time = [&](const char* argument, std::chrono::milliseconds time) {
    builder.AddChannelArgument(argument, static_cast<int>(time.count()));
  };
  set_time(GRPC_ARG_MAX_CONNECTION_IDLE_MS, limits.max_idle);
  set_time(GRPC_ARG_MAX_CONNECTION_AGE_MS, limits.max_age);
  // Clients' pings: minimum interval, with or without calls. Two early pings are forgiven, since
  // the network may deliver two at once.
  set_time(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, limits.min_ping_interval);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 2);
  // The server's pings, which detect clients that vanished without closing.
  set_time(GRPC_ARG_KEEPALIVE_TIME_MS, limits.keepalive);
  set_time(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, limits.keepalive_timeout);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // No compression: gRPC checks sizes after decompression, so a small message could take gigabytes.
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  grpc::ResourceQuota quota("triptych");
  quota.Resize(limits.max_memory_bytes);
  builder.SetResourceQuota(quota);
}

gpr_timespec Within(std::chrono::milliseconds timeout) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_millis(timeout.count(), GPR_TIMESPAN));
}

}  // namespace

class GrpcServer::Drain {
 public:
  explicit Drain(grpc_server* server) : queue_(grpc_completion_queue_create_for_next(nullptr)) {
    grpc_server_shutdown_and_notify(server, queue_, this);
  }
  // REQUIRES: the server has been destroyed.
  ~Drain() {
    Await(std::chrono::hours(1));
    grpc_completion_queue_shutdown(queue_);
    grpc_completion_queue_next(queue_, Within(std::chrono::hours(1)), nullptr);
    grpc_completion_queue_destroy(queue_);
  }

  // True if all connections have closed within `timeout`.
  bool Await(std::chrono::milliseconds timeout) {
    closed_ = closed_ ||
              grpc_completion_queue_next(queue_, Within(timeout), nullptr).type == GRPC_OP_COMPLETE;
    return closed_;
  }

 private:
  grpc_completion_queue* const queue_;
  bool closed_ = false;
};

GrpcServer::GrpcServer(const TransportOptions& options, const AuthGate& gate)
    : inference_service_(gate),
      model_service_(gate),
      kv_cache_service_(gate),
      admin_service_(gate, options.request_drain),
      vllm_service_(gate),
      reflection_service_(gate, AllServices()),
      credentials_(gate.certificates() != nullptr ? TlsCredentials(gate.certificates())
                                                  : grpc::InsecureServerCredentials()) {
  LogGrpcErrors();
  // Otherwise Protobuf writes to standard error for each message with invalid UTF-8.
  google::protobuf::SetLogHandler(nullptr);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  SetLimits(options.limits, builder);
  // Otherwise a second server could listen on the same port and get half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  int port = 0;
  builder.AddListeningPort(options.listen, credentials_, &port);
  builder.RegisterService(&inference_service_);
  builder.RegisterService(&model_service_);
  builder.RegisterService(&kv_cache_service_);
  builder.RegisterService(&admin_service_);
  builder.RegisterService(&vllm_service_);
  if (options.reflection) builder.RegisterService(&reflection_service_);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port == 0) {
    throw std::runtime_error("--listen " + options.listen +
                             ": cannot listen there; is the address right and the port free?");
  }
  address_ = options.listen.substr(0, options.listen.rfind(':') + 1) + std::to_string(port);
  SetHealth(false);
}

GrpcServer::~GrpcServer() {
  if (server_ != nullptr) Close(std::chrono::milliseconds(0));
}

void GrpcServer::SetHealth(bool serving) {
  auto* health = server_->GetHealthCheckService();
  for (const std::string& service : OwnServices()) health->SetServingStatus(service, serving);
  health->SetServingStatus("", serving);
}

void GrpcServer::StartDrain() {
  SetHealth(false);
  inference_service_.StartDrain();
  vllm_service_.StartDrain();
  drain_ = std::make_unique<Drain>(server_->c_server());
}

void GrpcServer::Close(std::chrono::milliseconds timeout) {
  if (drain_ == nullptr) StartDrain();
  kv_cache_service_.EndWatches();  // other calls end by themselves
  if (!drain_->Await(timeout)) grpc_server_cancel_all_calls(server_->c_server());
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_.reset();
  drain_.reset();
}

}  // namespace triptych::server
