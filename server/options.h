// Options of triptych-server: command line, environment and config file.
#ifndef TRIPTYCH_SERVER_OPTIONS_H_
#define TRIPTYCH_SERVER_OPTIONS_H_

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "engine/backend/model_backend.h"
#include "engine/base/asked_weight_formats.h"
#include "engine/base/formats.h"
#include "engine/serving/engine.h"
#include "server/core/access/admission.h"
#include "server/core/chat/built_in_templates.h"
#include "server/core/transport_options.h"
#include "server/logging.h"
#include "server/option_values.h"
#include "server/resources.h"
#include "server/tracing/tracing_options.h"

namespace triptych {
struct LoadOptions;
}

namespace triptych::server {

inline constexpr const char* kNoKvEvents = "off";
inline constexpr const char* kGrpcKvEvents = "grpc";

// True if events of the prefix cache are published over ZeroMQ.
bool PublishesKvEvents(const std::string& kv_events);

struct ServerOptions {
  TransportOptions transport;
  std::vector<ModelOptions> models;
  int64_t kv_cache_bytes = 0;  // all models together
  // On a GPU: share of the memory left by weights and workspaces; kv_cache_bytes is then its upper
  // bound. Absent if the size was given in bytes.
  std::optional<double> kv_cache_share;
  // For models that set none and have no default one that can be used.
  std::optional<ChatTemplateText> chat_template;
  std::optional<int64_t> max_positions;  // of models that set none; absent: their own context
  AskedWeightFormats weights;
  std::optional<CacheFormat> cache_format;
  std::string device = "cpu";  // all models: cpu, cuda or cuda:N
  // Why the device "auto" became the CPU; empty otherwise.
  std::string why_cpu;
  BackendOptions backend;  // except kv_cache_bytes and cache_format: set per model
  serving::EngineOptions engine;
  std::string kv_events = kNoKvEvents;  // or kGrpcKvEvents, or tcp://HOST:PORT for ZeroMQ
  std::string kv_events_replay = {};    // tcp://HOST:PORT; empty: none
  std::string kv_events_topic = {};
  bool kv_events_insecure = false;  // ZeroMQ addresses may be beyond this machine
  AdmissionLimits admission;
  int threads = 1;
  std::chrono::milliseconds drain_timeout{30'000};
  std::optional<TracingOptions> tracing;
  std::string log_level = "info";
  LogFormat log_format = LogFormat::kText;
};

// Load options of a model, with its checkpoint open. backend.kv_cache_bytes is the default.
// Throws LoadError, prefixed with the model's name.
LoadOptions OpenModel(const ModelOptions& model, const ServerOptions& options);

// The bytes of each model's pool: its own size, or an equal share of what those sizes leave of
// options.kv_cache_bytes. Throws std::invalid_argument if they do not fit.
std::vector<int64_t> SplitKvCacheBytes(const ServerOptions& options);

// Replaces each model's draft_model by the name of the model that drafts for it, if one does:
// `common` drafts for models that name none, except those that draft themselves. Throws
// std::invalid_argument if a name cannot be used.
void ResolveDraftModels(const std::optional<std::string>& common,
                        std::vector<ModelOptions>& models);

// Parses the command line, the environment and the config file. An option is taken from its flag
// (--drain-timeout), or else from its environment variable (TRIPTYCH_DRAIN_TIMEOUT) unless that is
// empty, or else from the file that --config or TRIPTYCH_CONFIG names (drain-timeout). Defaults and
// percentages refer to `available`. On --help, --version or a bad value prints the text and returns
// the exit status; otherwise fills `options`.
std::optional<int> ParseServerOptions(int argc, const char* const* argv, ServerOptions* options,
                                      const Resources& available = AvailableResources());

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_OPTIONS_H_
