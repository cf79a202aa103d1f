#include "server/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "engine/kernels/threads.h"

namespace triptych {
namespace {

// What is left to calls after their requests have ended: enough to send a status.
constexpr std::chrono::seconds kCloseTimeout{1};

// LoadHostedModel, but what is wrong with the cache names the model too.
HostedModel Load(const HostOptions& options) {
  try {
    return LoadHostedModel(options);
  } catch (const LoadError& e) {
    throw LoadError("model " + options.name + ": " + e.what());
  }
}

// The end of a model's log line; empty unless MLA.
std::string HowLatentAttends(const HostedModel& model) {
  const std::vector<ReducedForm>& forms = model.latent_forms;
  if (forms.empty()) return "";
  const auto factored = std::count(forms.begin(), forms.end(), ReducedForm::kFactored);
  const std::string prompts = model.vanilla_from ? "vanilla attention from position " +
                                                       std::to_string(*model.vanilla_from) + " on"
                                                 : "reduced attention alone";
  return "; layers: " + std::to_string(factored) + " factored, " +
         std::to_string(std::ssize(forms) - factored) + " premultiplied; prompts by " + prompts;
}

std::vector<HostedModel> LoadModels(const ServerOptions& options) {
  const std::vector<int64_t> kv_cache_bytes = SplitKvCacheBytes(options);
  SetComputeThreads(options.threads);  // of this thread: conversions compute
  std::vector<HostedModel> models;
  for (size_t i = 0; i < options.models.size(); ++i) {
    HostOptions host{.name = options.models[i].name,
                     .directory = options.models[i].directory,
                     .weight_format = options.weight_format,
                     .cache_format = options.cache_format,
                     .engine = options.engine,
                     .conversion = options.models[i].conversion,
                     .device = options.device,
                     .vanilla_from = options.vanilla_from};
    host.engine.kv_cache_bytes = kv_cache_bytes[i];
    const HostedModel& model = models.emplace_back(Load(host));
    std::string attention(Name(model.config.attention));
    if (model.converted_from) {
      attention += " (converted from " + std::string(Name(*model.converted_from)) + ")";
    }
    spdlog::info(
        "model {}: {}, {} parameters in {}, {} bytes per position in {}, {} positions fit{}",
        model.name, attention, model.parameters, Name(model.weight_format),
        model.engine->geometry().BytesPerPosition(), Name(model.cache_format),
        model.engine->pool_positions(), HowLatentAttends(model));
  }
  return models;
}

}  // namespace

Server::Server(const ServerOptions& options) : registry_(LoadModels(options), options.threads) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  // Without this a second server could listen on the same port, and get half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  int port = 0;
  builder.AddListeningPort(options.listen, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&inference_service_);
  builder.RegisterService(&model_service_);
  builder.RegisterService(&kv_cache_service_);
  grpc_server_ = builder.BuildAndStart();
  if (grpc_server_ == nullptr || port == 0) {
    throw std::runtime_error("--listen " + options.listen +
                             ": cannot listen there; is the address right and the port free?");
  }
  address_ = options.listen.substr(0, options.listen.rfind(':') + 1) + std::to_string(port);
  auto* health = grpc_server_->GetHealthCheckService();
  for (const char* service :
       {v1::InferenceService::service_full_name(), v1::ModelService::service_full_name(),
        v1::KvCacheService::service_full_name()}) {
    health->SetServingStatus(service, true);
  }
}

Server::~Server() {
  if (grpc_server_ != nullptr) Shutdown(std::chrono::milliseconds(0));
}

bool Server::Shutdown(std::chrono::milliseconds drain_timeout) {
  grpc_server_->GetHealthCheckService()->SetServingStatus(false);
  const bool drained = registry_.loop().Drain(drain_timeout);
  grpc_server_->Shutdown(std::chrono::system_clock::now() + kCloseTimeout);
  grpc_server_->Wait();
  grpc_server_.reset();
  return drained;
}

}  // namespace triptych
