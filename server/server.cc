#include "server/server.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend/model_backend.h"
#include "engine/base/error.h"
#include "engine/base/quantities.h"
#include "engine/checkpoint/config/config_file.h"
#include "engine/checkpoint/config/family.h"
#include "engine/checkpoint/config/generation_config.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/checkpoint/tokenizer/chat_templates.h"
#include "engine/kernels/context.h"
#include "engine/loading/loaded_model.h"
#include "server/choose_chat_template.h"
#include "server/core/access/auth_gate.h"
#include "server/core/log.h"
#include "server/core/server_core.h"
#include "server/for_model.h"
#include "server/grpc/grpc_server.h"
#include "server/http/http_server.h"
#include "server/model_log.h"
#include "server/tracing/span_exporter.h"
#include "server/zmq/kv_event_publisher.h"

namespace triptych::server {
namespace {

// Time for clients to close their connections after all requests have ended.
constexpr std::chrono::seconds kCloseTimeout{1};

// Room for four prompts of the whole context, since a Score may bring several. A position is a
// token id, at most 5 bytes, or text, seldom more than 8 bytes. kBytesBesidePrompt is for the other
// fields.
constexpr int64_t kBytesPerPosition = int64_t{4} * 8;
constexpr int64_t kBytesBesidePrompt = int64_t{64} << 10;
constexpr int64_t kMaxMessageBytes = int64_t{64} << 20;

// Number of the first batch of events: those of a later process are higher, so that a reader that
// resumes after a restart cannot take them for the next of the old ones.
uint64_t FirstKvEvents() {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::system_clock::now().time_since_epoch());
  return static_cast<uint64_t>(seconds.count()) << 20;
}

// LoadModel that logs its progress every kBetweenLines.
LoadedModel Load(LoadOptions options, const std::shared_ptr<kernels::KernelContext>& context) {
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kBetweenLines{2};
  options.on_layer = [&options, next = Clock::now() + kBetweenLines](int64_t loaded,
                                                                     int64_t layers) mutable {
    if (Clock::now() < next) return;
    LogInfo("model {}: {} of {} layers loaded", options.name, loaded, layers);
    next = Clock::now() + kBetweenLines;
  };
  return ForModel(options.name, [&] { return LoadModel(options, context); });
}

// The origin of a format that an option may set.
std::string FormatOrigin(bool given, const char* option, const std::string& otherwise) {
  return given ? std::string("by ") + option : otherwise;
}

// Where the properties of a model that is about to be loaded come from, except its tokenizer's and
// its chat template's.
ModelOrigins OriginsOf(const LoadOptions& load) {
  const checkpoint::OpenedCheckpoint& checkpoint = load.checkpoint;
  ModelOrigins origins{.tokenizer = {},
                       .chat = {},
                       .context = checkpoint.context_origin,
                       .weights = {},
                       .cache = {},
                       .warnings = checkpoint.warnings};
  const int64_t own = checkpoint.config.max_position_embeddings;
  const int64_t served = ServedPositions(load);
  if (served < own) {
    const char* limit = "the largest rotary table for this KV cache";
    if (load.conversion && served == checkpoint.config.sliding_window) {
      limit = "the sliding window, which a conversion to mla does not keep";
    }
    if (load.max_positions == served) limit = "by max-model-len";
    origins.context = fmt::format("{}; the model's: {}, {}", limit, own, checkpoint.context_origin);
  }
  const std::string default_weights =
      load.device == "cpu" ? "the checkpoint's" : "the default on a GPU";
  origins.weights = FormatOrigin(load.weights.layers.has_value(), "--dtype", default_weights);
  if (load.weights.embeddings) origins.weights += ", embeddings by --embedding-dtype";
  if (load.weights.experts && checkpoint.config.experts.n_routed_experts > 0) {
    origins.weights += ", experts by --expert-dtype";
  }
  origins.cache = FormatOrigin(load.cache_format.has_value(), "--kv-cache-dtype",
                               "the default for these weights");
  return origins;
}

// Sets the cache sizes of models on a GPU, from the bytes of their weights and workspaces. Throws
// LoadError unless everything fits in the GPU's free memory.
void SizeDeviceCaches(ServerOptions options, int64_t free, std::vector<LoadOptions>& loads) {
  int64_t weights = 0, workspace = 0;
  for (LoadOptions load : loads) {
    load.backend.kv_cache_bytes = free;  // rotary tables grow with the cache
    const LoadedBytes bytes = ForModel(load.name, [&] { return CountLoadedBytes(load); });
    weights += bytes.weights;
    workspace += bytes.workspace;
  }
  const int64_t left = free - weights - workspace - kDeviceHeadRoom;
  const auto refuse = [&](int64_t cache) {
    throw LoadError(
        fmt::format("--device {}: weights of {}, a workspace of {} and a KV cache of {} do not fit "
                    "in {} of free memory, of which {} stay unused; allowed: --kv-cache-bytes of "
                    "{}",
                    options.device, FormatBytes(weights), FormatBytes(workspace),
                    FormatBytes(cache), FormatBytes(free), FormatBytes(kDeviceHeadRoom),
                    left > 0 ? "at most " + std::to_string(left) : "no size"));
  };
  if (options.kv_cache_share) {
    if (left <= 0) refuse(0);
    options.kv_cache_bytes =
        static_cast<int64_t>(*options.kv_cache_share * static_cast<double>(left));
  }
  std::vector<int64_t> caches;
  try {
    caches = SplitKvCacheBytes(options);
  } catch (const std::invalid_argument& e) {
    throw LoadError(e.what());
  }
  const int64_t all = std::accumulate(caches.begin(), caches.end(), int64_t{0});
  if (all > left) refuse(all);
  for (size_t i = 0; i < loads.size(); ++i) loads[i].backend.kv_cache_bytes = caches[i];
}

// Load options of each model, with its checkpoint open.
std::vector<LoadOptions> OpenModels(const ServerOptions& options) {
  const std::vector<int64_t> kv_cache_bytes = SplitKvCacheBytes(options);
  std::vector<LoadOptions> loads;
  for (size_t i = 0; i < options.models.size(); ++i) {
    LoadOptions load = OpenModel(options.models[i], options);
    load.backend.kv_cache_bytes = kv_cache_bytes[i];
    if (options.kv_events != kNoKvEvents) load.engine.kv_events = FirstKvEvents();
    loads.push_back(std::move(load));
  }
  if (const auto free = FreeDeviceBytes(options.device)) SizeDeviceCaches(options, *free, loads);
  return loads;
}

// `options` with a message limit that fits prompts of the longest context of the models.
TransportOptions WithMessageSize(const ServerOptions& options,
                                 const std::vector<LoadOptions>& models) {
  TransportOptions transport = options.transport;
  for (const LoadOptions& model : models) {
    const int64_t positions = ForModel(model.name, [&] { return ServedPositions(model); });
    const int64_t bytes = kBytesBesidePrompt + positions * kBytesPerPosition;
    transport.limits.max_message_bytes =
        std::max(transport.limits.max_message_bytes, std::min(bytes, kMaxMessageBytes));
  }
  return transport;
}

// Throws LoadError unless there is memory for the models that are still to be loaded, `models[i]`
// for each i of `order`, and for the prompt scratch of these and of the models loaded before
// (`prompt_bytes`). A system that overcommits memory would otherwise kill the process later, during
// requests.
void CheckMemory(std::span<const LoadOptions> models, std::span<const size_t> order,
                 int64_t prompt_bytes) {
  const std::optional<int64_t> left = MemoryLeft();
  if (!left) return;
  int64_t before = 0;  // bytes of the models that are loaded first
  for (const size_t i : order) {
    const LoadOptions& model = models[i];
    const LoadedBytes bytes = ForModel(model.name, [&] { return CountLoadedBytes(model); });
    prompt_bytes += bytes.prompts;
    const int64_t cache = model.backend.kv_cache_bytes;
    const int64_t free = MemoryGauge::kHeadRoom + prompt_bytes;
    if (before + bytes.weights + std::max(cache, bytes.loading) + free > *left) {
      throw LoadError(fmt::format(
          "model {}: not enough memory: its cache takes {} bytes, its weights {} and about {} more "
          "during loading, models before it {}, and {} must stay free, {} of them for prompts; {} "
          "bytes are left",
          model.name, cache, bytes.weights, bytes.loading, before, free, prompt_bytes, *left));
    }
    before += bytes.weights + cache;
  }
}

// The models in the order in which they are loaded: each after the one that drafts for it.
std::vector<size_t> LoadingOrder(const std::vector<ModelOptions>& models) {
  std::vector<size_t> order(models.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_partition(order.begin(), order.end(),
                        [&](size_t i) { return !models[i].draft_model; });
  return order;
}

// Loads `models`, which OpenModels returned, and logs each. A checkpoint is closed once loaded.
std::vector<ModelEntry> LoadModels(const ServerOptions& options, std::vector<LoadOptions> models,
                                   const std::shared_ptr<kernels::KernelContext>& context) {
  std::vector<ModelEntry> entries(models.size());
  std::map<std::string, LoadedModel> all;
  int64_t prompt_bytes = 0;
  const std::vector<size_t> order = LoadingOrder(options.models);
  for (size_t step = 0; step < order.size(); ++step) {
    const size_t i = order[step];
    if (options.device == "cpu") {
      CheckMemory(models, std::span(order).subspan(step), prompt_bytes);
    }
    if (const auto& name = options.models[i].draft_model) models[i].draft_model = &all.at(*name);
    ModelOrigins origins = OriginsOf(models[i]);
    const checkpoint::OwnChatTemplates own = ForModel(options.models[i].name, [&] {
      return checkpoint::ReadChatTemplates(models[i].checkpoint);
    });
    LoadedModel& loaded = all[options.models[i].name];
    loaded = Load(std::move(models[i]), context);
    if (loaded.info.expand_from && !loaded.info.device_memory) {
      prompt_bytes += MostScratchBytes(loaded.config);
    }
    const auto chat_template = ChooseChatTemplate(options.models[i], own, *loaded.tokenizer,
                                                  options.chat_template, origins);
    std::vector<std::string> own_names;
    for (const auto& [name, text] : own.texts) own_names.push_back(name);
    origins.warnings.insert(origins.warnings.end(), own.warnings.begin(), own.warnings.end());
    entries[i].model = {static_cast<const serving::ServedModel&>(loaded),
                        checkpoint::ToJson(loaded.config), chat_template, std::move(own_names),
                        std::filesystem::absolute(options.models[i].checkpoint)};
    origins.tokenizer = std::move(loaded.tokenizer_notes);
    if (loaded.tokenizer->vocab_size() > loaded.config.vocab_size) {
      origins.warnings.push_back(
          fmt::format("its tokenizer has {} tokens, the model {}; the further tokens are refused",
                      loaded.tokenizer->vocab_size(), loaded.config.vocab_size));
    }
    if (!loaded.not_applied.empty()) {
      origins.warnings.push_back(fmt::format("settings of its {} that are not applied: {}",
                                             checkpoint::kGenerationConfigFile,
                                             loaded.not_applied));
    }
    LogModel(entries[i].model, origins);
  }
  for (ModelEntry& entry : entries) entry.engine = std::move(all.at(entry.model.name).engine);
  return entries;
}

}  // namespace

Server::Server(const ServerOptions& options) {
  // Compute threads first: once clients can connect, the system may be at its limit of threads.
  // Then checkpoints and addresses, so that a bad checkpoint or a port in use fails before minutes
  // of loading.
  const auto context = std::make_shared<kernels::KernelContext>(options.threads);
  RequestObserver observer;
  if (options.tracing) {
    span_exporter_ = std::make_unique<SpanExporter>(*options.tracing);
    observer = [this](const RequestSummary& summary) { span_exporter_->Add(summary); };
    LogInfo("tracing: spans go to {}", options.tracing->collector.Text());
    if (!options.tracing->other_protocol.empty()) {
      LogWarning("tracing: the protocol is http/json, not {}", options.tracing->other_protocol);
    }
  }
  if (!options.why_cpu.empty()) LogWarning("--device auto is cpu: {}", options.why_cpu);
  std::vector<LoadOptions> models = OpenModels(options);
  TransportOptions transport = WithMessageSize(options, models);
  transport.is_memory_short = [this] { return memory_gauge_.UnderPressure(); };
  gate_ = std::make_unique<AuthGate>(transport);
  grpc_server_ = std::make_unique<GrpcServer>(transport, *gate_);
  address_ = grpc_server_->address();
  if (transport.http) {
    http_server_ = std::make_unique<HttpServer>(*transport.http, transport, *gate_);
    http_address_ = http_server_->address();
  }
  if (PublishesKvEvents(options.kv_events)) {
    kv_event_publisher_ =
        std::make_unique<KvEventPublisher>(KvPublisherOptions{.address = options.kv_events,
                                                              .replay = options.kv_events_replay,
                                                              .topic = options.kv_events_topic});
  }
  core_ = std::make_unique<ServerCore>(LoadModels(options, std::move(models), context),
                                       options.admission, transport.limits.max_message_bytes,
                                       transport.device_lost, std::move(observer));
  if (kv_event_publisher_ != nullptr) kv_event_publisher_->Start(core_->kv_events);
  gate_->Open(*core_);
  grpc_server_->Serve();
  if (http_server_ != nullptr) http_server_->Serve();
}

Server::~Server() {
  if (grpc_server_ != nullptr) Shutdown(std::chrono::milliseconds(0));
}

bool Server::Shutdown(std::chrono::milliseconds drain_timeout) {
  // HTTP first: a client that sees NOT_SERVING never finds /health at 200.
  if (http_server_ != nullptr) http_server_->StartDrain();
  grpc_server_->StartDrain();
  const bool drained = core_->requests.Drain(drain_timeout);
  core_->kv_events.End();
  kv_event_publisher_.reset();
  if (http_server_ != nullptr) http_server_->Close(kCloseTimeout);
  http_server_.reset();
  grpc_server_->Close(kCloseTimeout);
  grpc_server_.reset();
  return drained;
}

}  // namespace triptych::server
