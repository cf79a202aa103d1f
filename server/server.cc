#include "server/server.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/checkpoint/config_file.h"
#include "engine/hosting/hosted_model.h"
#include "engine/kernels/context.h"
#include "server/core/model_host.h"
#include "server/grpc/grpc_server.h"

namespace triptych {
namespace {

// What is left to calls after their requests have ended: enough to send a status.
constexpr std::chrono::seconds kCloseTimeout{1};

// LoadHostedModel, but what is wrong with the cache names the model too.
HostedModel Load(const HostOptions& options, const std::shared_ptr<KernelContext>& context) {
  try {
    return LoadHostedModel(options, context);
  } catch (const LoadError& e) {
    throw LoadError("model " + options.name + ": " + e.what());
  }
}

// What a model is, before a host runs its engine.
ServedModel Describe(const HostedModel& hosted) {
  ServedModel model{.name = hosted.name,
                    .config = hosted.config,
                    .config_json = ToJson(hosted.config),
                    .converted_from = hosted.converted_from,
                    .weight_format = hosted.weight_format,
                    .cache_format = hosted.cache_format,
                    .parameters = hosted.parameters,
                    .parameter_bytes = hosted.parameter_bytes,
                    .latent_forms = {},
                    .expand_from = hosted.info.expand_from,
                    .geometry = hosted.info.geometry,
                    .pool_positions = hosted.info.pool_positions(),
                    .tokenizer = hosted.tokenizer};
  for (const ReducedForm form : hosted.latent_forms) model.latent_forms.emplace_back(Name(form));
  return model;
}

// How MLA attends, for the end of a model's log line; empty for other kinds.
std::string HowLatentAttends(const ServedModel& model) {
  const std::vector<std::string>& forms = model.latent_forms;
  if (forms.empty()) return "";
  const auto factored = std::count(forms.begin(), forms.end(), Name(ReducedForm::kFactored));
  const std::string prompts =
      model.expand_from ? fmt::format("vanilla attention from position {} on", *model.expand_from)
                        : "reduced attention alone";
  return fmt::format("; layers: {} factored, {} premultiplied; prompts by {}", factored,
                     std::ssize(forms) - factored, prompts);
}

void LogModel(const ServedModel& model) {
  std::string attention(Name(model.config.attention));
  if (model.converted_from) {
    attention += fmt::format(" (converted from {})", Name(*model.converted_from));
  }
  spdlog::info("model {}: {}, {} parameters in {}, {} bytes per position in {}, {} positions fit{}",
               model.name, attention, model.parameters, Name(model.weight_format),
               model.geometry.BytesPerPosition(), Name(model.cache_format), model.pool_positions,
               HowLatentAttends(model));
}

// Logs each model when it is loaded.
std::vector<ServedEngine> LoadModels(const ServerOptions& options) {
  const std::vector<int64_t> kv_cache_bytes = SplitKvCacheBytes(options);
  const auto context = std::make_shared<KernelContext>(options.threads);
  std::vector<ServedEngine> served;
  for (size_t i = 0; i < options.models.size(); ++i) {
    HostOptions host{.name = options.models[i].name,
                     .directory = options.models[i].directory,
                     .weight_format = options.weight_format,
                     .cache_format = options.cache_format,
                     .backend = options.backend,
                     .engine = options.engine,
                     .conversion = options.models[i].conversion,
                     .device = options.device};
    host.backend.kv_cache_bytes = kv_cache_bytes[i];
    HostedModel hosted = Load(host, context);
    served.push_back({Describe(hosted), std::move(hosted.engine)});
    LogModel(served.back().model);
  }
  return served;
}

}  // namespace

Server::Server(const ServerOptions& options)
    : host_(std::make_unique<ModelHost>(LoadModels(options))),
      grpc_server_(std::make_unique<GrpcServer>(*host_, options.listen)),
      address_(grpc_server_->address()) {}

Server::~Server() {
  if (grpc_server_ != nullptr) Shutdown(std::chrono::milliseconds(0));
}

bool Server::Shutdown(std::chrono::milliseconds drain_timeout) {
  grpc_server_->StopServing();
  const bool drained = host_->Drain(drain_timeout);
  grpc_server_->Shutdown(kCloseTimeout);
  grpc_server_.reset();
  return drained;
}

}  // namespace triptych
