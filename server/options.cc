#include "server/options.h"

#include <spdlog/fmt/fmt.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <string_view>

#include "engine/backend/server_bytes.h"
#include "engine/base/address.h"
#include "engine/base/environment.h"
#include "engine/base/error.h"
#include "engine/base/quoted.h"
#include "engine/base/version.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/loading/loaded_model.h"
#include "server/for_model.h"
#include "server/zmq/kv_event_publisher.h"

namespace triptych::server {
namespace {

// The default is the smaller of the two.
constexpr const char* kDefaultKvCacheBytes = "1GiB";
constexpr const char* kDefaultKvCacheShare = "25%";
constexpr const char* kDefaultGpuCacheShare = "90%";

constexpr const char* kNoHttp = "none";

// Values that are converted once all options are known.
struct Texts {
  std::vector<std::string> models;
  std::string kv_cache_bytes;
  std::string log_format = "text";
  std::string http = kNoHttp;
  std::string tls_cert, tls_key, tls_client_ca, tokens;
  std::string otlp_endpoint;
  std::optional<std::string> draft_model;
};

constexpr std::string_view kTcp = "tcp://";

// The host of an address that CheckZmqAddress admits.
std::string ZmqHost(const std::string& address) {
  return address.substr(kTcp.size(), address.rfind(':') - kTcp.size());
}

// Throws std::invalid_argument unless `text` is tcp://HOST:PORT, where HOST may be *. `others`:
// what else is allowed.
void CheckZmqAddress(const std::string& text, const std::string& others) {
  const std::string rest = text.starts_with(kTcp) ? text.substr(kTcp.size()) : "";
  const auto address = ParseAddress(rest.starts_with("*:") ? "0.0.0.0" + rest.substr(1) : rest);
  if (address && address->port > 0) return;
  throw std::invalid_argument(
      fmt::format("{} is not an address; allowed: {}tcp://HOST:PORT, such as tcp://*:5557",
                  Quoted(text), others));
}

// A CLI11 validator from `parse`, which throws std::invalid_argument on a bad value.
template <typename Parse>
CLI::Validator Parses(const std::string& description, Parse parse) {
  return CLI::Validator(
      [parse](std::string& text) {
        try {
          parse(text);
        } catch (const std::invalid_argument& e) {
          return std::string(e.what());
        }
        return std::string();
      },
      description);
}

// Adds an option in seconds, from `low` to a day, with the default `value`.
void AddSeconds(CLI::App& app, const std::string& flag, std::chrono::milliseconds& value,
                double low, const std::string& help) {
  constexpr double kDay = 86400;
  const auto check = [=](const std::string& text) {
    double seconds = 0;
    if (!CLI::detail::lexical_cast(text, seconds) || !(seconds >= low && seconds <= kDay)) {
      throw std::invalid_argument(
          fmt::format("is {}; allowed: {} to {} seconds", Quoted(text), low, kDay));
    }
  };
  app.add_option_function<double>(
         flag,
         [&value](double seconds) {
           value = std::chrono::milliseconds(std::llround(seconds * 1000));
         },
         help)
      ->check(Parses("SECONDS", check))
      ->default_str(fmt::format("{}", static_cast<double>(value.count()) / 1000));
}

// Adds an option that is on or off, with the default `value`.
void AddSwitch(CLI::App& app, const std::string& flag, bool& value, const std::string& help) {
  app.add_option_function<std::string>(
         flag, [&value](const std::string& text) { value = text == "on"; }, "On or off: " + help)
      ->check(CLI::IsMember({"on", "off"}))
      ->default_str(value ? "on" : "off");
}

// Adds an option that takes the name of an enumerator.
template <typename Enum>
void AddNamed(CLI::App& app, const std::string& flag, std::optional<Enum>& value,
              const std::string& help) {
  app.add_option_function<std::string>(
         flag, [&value](const std::string& name) { value = Names<Enum>().at(name); }, help)
      ->check(CLI::IsMember(Names<Enum>()));
}

// The environment variable that sets an option: TRIPTYCH_DRAIN_TIMEOUT for drain-timeout.
std::string VariableName(const std::string& option) {
  std::string name = "TRIPTYCH_" + option;
  std::replace(name.begin(), name.end(), '-', '_');
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

// The functions below declare options that write to `options` and `texts`, which must outlive
// parsing.

// Models and addresses.
void DeclareHosting(CLI::App& app, const Resources& available, ServerOptions& options,
                    Texts& texts) {
  const int64_t memory_bytes = available.memory_bytes;
  const auto parse_size = [=](const std::string& text) {
    return ParseByteSize(text, memory_bytes);
  };
  app.add_option(
         "--model", texts.models,
         "Model to serve, NAME=PATH[,SETTING=VALUE...]; PATH is a checkpoint's directory or .gguf "
         "file. Repeatable; or several models separated by ';'. Settings: kv-cache-bytes=SIZE, "
         "chat-template=FILE|NAME|own:NAME, max-model-len=N, draft-model=NAME, and to convert it "
         "at load "
         "attention=mha, "
         "attention=gqa,groups=G or "
         "attention=mla[,rank=R][,rope-head-dim=N]")
      ->required()
      ->allow_extra_args(false)
      ->delimiter(';')
      ->check(Parses("NAME=PATH",
                     [=](const std::string& text) { ParseModelOptions(text, memory_bytes); }));
  app.add_option("--listen", options.transport.listen,
                 "gRPC address; port 0 lets the system choose")
      ->check(Parses("HOST:PORT", CheckAddress))
      ->capture_default_str();
  app.add_option("--http", texts.http, "HTTP address, or none")
      ->check(Parses("HOST:PORT",
                     [](const std::string& text) {
                       if (text != kNoHttp) CheckAddress(text);
                     }))
      ->capture_default_str();
  app.add_option(
         "--http-hosts", options.transport.http_hosts,
         "Host header values, separated by commas, that HTTP accepts where no token or certificate "
         "is required, in addition to IP addresses, localhost, this machine's name and the host of "
         "--http [none]")
      ->delimiter(',')
      ->check(Parses("NAME", CheckHostName));
  app.add_option("--http-origins", options.transport.http_origins,
                 "Origins, separated by commas, whose web pages may use HTTP (CORS), such as "
                 "http://localhost:5173; *: all [none]")
      ->delimiter(',')
      ->check(Parses("ORIGIN", CheckOrigin));
  AddSwitch(app, "--http-parse-special", options.transport.http_parse_special,
            "prompts of /v1/completions and texts of /tokenize name special tokens, unless a "
            "request's parse_special says otherwise");
  texts.kv_cache_bytes = parse_size(kDefaultKvCacheShare) < parse_size(kDefaultKvCacheBytes)
                             ? kDefaultKvCacheShare
                             : kDefaultKvCacheBytes;
  app.add_option(
         "--kv-cache-bytes", texts.kv_cache_bytes,
         "KV cache of all models together: bytes, 512MiB, or 25% of memory (on a GPU, of the "
         "memory left by weights and workspaces [there 90%]). Models without a size of their "
         "own share it equally")
      ->check(Parses("SIZE", parse_size))
      ->capture_default_str();
  app.add_option("--max-model-len,--context", options.max_positions,
                 "Context of models that set none, in positions; lowers the model's own [the "
                 "model's]")
      ->check(CLI::Range(kServedPositions.low, kServedPositions.high));
  app.add_option_function<std::string>(
         "--chat-template",
         [&options](const std::string& text) {
           options.chat_template = ReadChatTemplateText(text);
         },
         "Chat template of models that set none and have no default one that can be used: a file "
         "of "
         "Jinja, own:NAME for one that the checkpoint names so, or one of " +
             BuiltInTemplateNames() + " [none]")
      ->check(Parses("FILE|NAME", [](const std::string& text) { ReadChatTemplateText(text); }));
}

// Formats and device of every model.
void DeclareCompute(CLI::App& app, ServerOptions& options) {
  AddNamed(app, "--dtype", options.weights.layers,
           "Format of the weights [the checkpoint's; on a GPU bfloat16]");
  AddNamed(app, "--embedding-dtype", options.weights.embeddings,
           "Format of the embedding and output matrix [--dtype, or else the checkpoint's]");
  AddNamed(app, "--expert-dtype", options.weights.experts,
           "Format of the routed experts of models that have them [--dtype, or else the "
           "checkpoint's]");
  AddNamed(app, "--kv-cache-dtype,--kv-dtype", options.cache_format,
           "Format of the KV cache [float32 for float32 weights, else bfloat16]");
  app.add_option("--device", options.device,
                 "Device of weights, cache and compute: cpu, cuda (the first GPU), cuda:N, or auto "
                 "(the first GPU if it serves the models with these options, else cpu)")
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--expand-from",
         [&options](const std::string& text) {
           options.backend.expand_from = ParseExpandFrom(text);
         },
         "MLA: prompt position from which keys and values are expanded; auto picks the crossover "
         "on "
         "the CPU and 0 on a GPU, never always uses reduced attention [auto]")
      ->check(Parses("POSITION", ParseExpandFrom));
}

// Bounds of every model's steps and queue.
void DeclareScheduling(CLI::App& app, ServerOptions& options, Texts& texts) {
  serving::EngineOptions& engine = options.engine;
  const auto add_count = [&](const std::string& flag, int64_t& value, int64_t max,
                             const std::string& help) {
    app.add_option(flag, value, help)->check(CLI::Range(int64_t{1}, max))->capture_default_str();
  };
  add_count("--block-positions", options.backend.block_positions, 4096,
            "Positions per cache block; the fast GPU kernels need 16");
  add_count("--max-batch-tokens", engine.max_batch_tokens, 1 << 20,
            "Token rows per step [on a GPU 2048]");
  add_count("--max-running", engine.max_running, 1 << 16, "Running sequences per model");
  add_count("--max-waiting", engine.max_waiting, 1 << 20, "Queued requests per model");
  add_count("--max-waiting-tokens", engine.max_waiting_tokens, int64_t{1} << 40,
            "Tokens of the queued requests' prompts and predictions per model");
  AddSeconds(app, "--queue-timeout", engine.queue_timeout, 0,
             "Longest time of a request in the queue, seconds; 0: unlimited");
  AddSwitch(app, "--prefix-cache", engine.prefix_cache,
            "requests with the same prompt prefix share cached blocks");
  app.add_option("--kv-events", options.kv_events,
                 "Events of the prefix cache for routers: off; grpc, for SubscribeKvEvents of "
                 "vllm.grpc.engine.VllmEngine; or an address, tcp://HOST:PORT, that publishes them "
                 "over ZeroMQ, too" +
                     std::string(KvEventPublisher::IsBuilt() ? "" : " (not in this build)"))
      ->check(Parses("EVENTS",
                     [](const std::string& text) {
                       if (text == kNoKvEvents || text == kGrpcKvEvents) return;
                       CheckZmqAddress(text, "off, grpc and ");
                     }))
      ->capture_default_str();
  app.add_option("--kv-events-replay", options.kv_events_replay,
                 "ZeroMQ address, tcp://HOST:PORT, where subscribers ask for events again [none]")
      ->check(Parses("ADDRESS", [](const std::string& text) { CheckZmqAddress(text, ""); }));
  app.add_option("--kv-events-topic", options.kv_events_topic,
                 "ZeroMQ topic of the events, such as kv@POD@MODEL for llm-d [empty]");
  app.add_flag(
      "--kv-events-insecure", options.kv_events_insecure,
      "Permission to publish events over ZeroMQ beyond this machine, where every peer reads "
      "the tokens of every client");
  engine.speculation = serving::Speculation::kWherePays;
  app.add_option_function<std::string>(
         "--speculation",
         [&engine](const std::string& text) {
           engine.speculation =
               text == "off" ? serving::Speculation::kOff : serving::Speculation::kWherePays;
         },
         "Drafts of the next tokens, which a decode step verifies where that is faster: ngram "
         "looks up the last tokens in the prompt, the output and the request's prediction; the "
         "output is the same")
      ->check(CLI::IsMember({"off", "ngram"}))
      ->default_str("ngram");
  app.add_option("--draft-model", texts.draft_model,
                 "Served model that drafts for models that set none, where that is faster than the "
                 "drafts of --speculation; a smaller one with the same tokenizer, on the CPU. The "
                 "KV cache of each model holds its rows, too [none]");
  app.add_option("--max-slowdown", engine.max_slowdown,
                 "Largest slowdown of a decode step by concurrent prefill, a factor; steps under "
                 "3.5 ms are never limited")
      ->check(Parses(
          "TIMES",
          [](const std::string& text) {
            double times = 0;
            if (!CLI::detail::lexical_cast(text, times) || !(times >= 1.1 && times <= 1000)) {
              throw std::invalid_argument("is " + Quoted(text) + "; allowed: 1.1 to 1000");
            }
          }))
      ->capture_default_str();
}

// Limits of one client.
void DeclareShares(CLI::App& app, ServerOptions& options) {
  app.add_option("--max-client-requests", options.admission.max_client_requests,
                 "Live requests of one client; 0: unlimited")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->capture_default_str();
  app.add_option("--client-rate", options.admission.client_rate,
                 "Requests per second of one client, and its largest burst; 0: unlimited")
      ->check(Parses("RATE",
                     [](const std::string& text) {
                       double rate = 0;
                       if (!CLI::detail::lexical_cast(text, rate) || !(rate >= 0 && rate <= 1e6) ||
                           (rate > 0 && rate < 1e-3)) {
                         throw std::invalid_argument("is " + Quoted(text) +
                                                     "; allowed: 0, and 0.001 to 1000000");
                       }
                     }))
      ->capture_default_str();
  AddSeconds(app, "--stall-timeout", options.transport.limits.stall_timeout, 0.1,
             "Time without progress after which a slow reader's stream is cancelled, seconds");
}

// TLS, authentication and gRPC connections.
void DeclareAccess(CLI::App& app, ServerOptions& options, Texts& texts) {
  app.add_option("--tls-cert", texts.tls_cert,
                 "PEM file of the server's certificate chain; reloaded when it changes, as are the "
                 "three files below");
  app.add_option("--tls-key", texts.tls_key,
                 "PEM file of the certificate's private key, without a passphrase");
  app.add_option(
      "--tls-client-ca", texts.tls_client_ca,
      "PEM file of the authorities that issue clients' certificates (mutual TLS) [clients "
      "need no certificate]");
  app.add_option("--tokens", texts.tokens,
                 "File of bearer tokens, one per line: NAME SCOPE[,SCOPE...] SHA256HEX; scopes: "
                 "inference, statistics, admin [no token is required]");
  app.add_flag("--insecure", options.transport.access.insecure,
               "Permission to listen beyond this machine without TLS or authentication");
  AddSwitch(app, "--reflection", options.transport.reflection, "gRPC reflection");
  app.add_option("--max-streams", options.transport.limits.max_streams,
                 "Concurrent calls per connection")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
}

// Threads, drain and log.
void DeclareProcess(CLI::App& app, const Resources& available, ServerOptions& options,
                    Texts& texts) {
  options.threads = std::clamp(available.cpus, 1, 1024);
  app.add_option("--threads", options.threads, "Compute threads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  AddSeconds(app, "--drain-timeout", options.drain_timeout, 0,
             "Time for live requests after SIGTERM or Ctrl-C, seconds");
  app.add_option(
         "--otlp-endpoint", texts.otlp_endpoint,
         "OpenTelemetry collector that gets a span of each request, in OTLP's JSON, at "
         "URL/v1/traces; the variables OTEL_* set the rest [OTEL_EXPORTER_OTLP_ENDPOINT, or "
         "else no tracing]")
      ->type_name("URL");
  app.add_option("--log-level", options.log_level, "Least severe level that is logged")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "off"}))
      ->capture_default_str();
  app.add_option("--log-format", texts.log_format, "Format of the log")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

// Options that few deployments need, in a group of their own in --help.
void GroupAdvanced(CLI::App& app) {
  for (const char* name : {"--block-positions", "--expand-from", "--max-slowdown", "--speculation",
                           "--draft-model", "--max-waiting-tokens", "--client-rate", "--http-hosts",
                           "--http-origins", "--http-parse-special", "--otlp-endpoint"}) {
    app.get_option(name)->group("Advanced");
  }
}

// Names each option's environment variable, and parses the command line with a flag added for each
// option that only its variable sets. CLI11 reads the config file.
void ParseSources(CLI::App& app, int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (CLI::Option* option : app.get_options()) {
    const std::string& name = option->get_lnames().front();
    if (option->get_configurable()) option->envname(VariableName(name));
    if (option->get_envname().empty()) continue;
    AddFlagFromEnvironment("--" + name, option->get_envname(), arguments);
  }
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  app.parse(std::move(arguments));
}

// Throws std::invalid_argument unless the device serves the options' formats, and draft models if
// there are any.
void CheckFormatsAndDrafts(const std::string& device, bool draft_models,
                           const ServerOptions& options) {
  CheckDevice(device, options.weights, options.cache_format);
  if (draft_models && device != "cpu") {
    throw std::invalid_argument(device + " does not serve draft models; allowed: cpu");
  }
}

bool HasDraftModel(const ModelOptions& model) { return model.draft_model.has_value(); }

// Throws LoadError or std::invalid_argument unless GPU `device` serves the models with the options,
// as far as can be told without its free memory.
void CheckGpuServes(const std::string& device, const std::vector<ModelOptions>& models,
                    int64_t memory, const ServerOptions& options) {
  for (const ModelOptions& model : models) {
    LoadOptions load = OpenModel(model, options);
    load.backend.kv_cache_bytes = FreeDeviceBytes(device).value_or(memory);
    load.device = device;
    ForModel(model.name, [&] { return CountLoadedBytes(load); });
  }
}

// Replaces the device "auto" by the first GPU if it serves the models, else by the CPU.
void ChooseDevice(const Texts& texts, int64_t memory, ServerOptions& options) {
  constexpr const char* kGpu = "cuda:0";
  std::vector<ModelOptions> parsed;
  parsed.reserve(texts.models.size());
  for (const std::string& text : texts.models) parsed.push_back(ParseModelOptions(text, memory));
  try {
    CheckFormatsAndDrafts(kGpu, texts.draft_model || std::ranges::any_of(parsed, HasDraftModel),
                          options);
    CheckGpuServes(kGpu, parsed, memory, options);
    options.device = kGpu;
  } catch (const std::exception& e) {  // including errors of the GPU
    options.device = "cpu";
    options.why_cpu = e.what();
  }
}

// Sets the device and the options that depend on it. Returns the bytes of memory that a model's own
// percentage refers to. Throws CLI::ValidationError.
int64_t ConvertDevice(const CLI::App& app, const Texts& texts, const Resources& available,
                      ServerOptions& options) {
  if (options.device == "auto") ChooseDevice(texts, available.memory_bytes, options);
  std::optional<int64_t> gpu_bytes;
  try {
    gpu_bytes = FreeDeviceBytes(options.device);
  } catch (const LoadError& e) {  // a GPU that fails
    throw CLI::ValidationError("--device", e.what());
  }
  const bool given = app.get_option("--kv-cache-bytes")->count() > 0;
  const std::string size = gpu_bytes && !given ? kDefaultGpuCacheShare : texts.kv_cache_bytes;
  const int64_t memory = gpu_bytes.value_or(available.memory_bytes);
  options.kv_cache_bytes = ParseByteSize(size, memory);
  const int64_t taken = gpu_bytes ? 0 : kServerBytes;
  if (options.kv_cache_bytes > memory - taken) {
    throw CLI::ValidationError(
        "--kv-cache-bytes",
        fmt::format("{} ({} bytes) does not fit: there are {} bytes of memory{}", size,
                    options.kv_cache_bytes, memory,
                    gpu_bytes ? " free on " + options.device
                              : fmt::format(", of which the server itself needs {}", taken)));
  }
  if (!gpu_bytes) return memory;
  if (size.ends_with('%')) {
    options.kv_cache_share =
        static_cast<double>(options.kv_cache_bytes) / static_cast<double>(memory);
  }
  if (app.get_option("--max-batch-tokens")->count() == 0) {
    options.engine.max_batch_tokens = kDefaultGpuBatchTokens;
  }
  return memory;
}

// Converts `texts`. Throws CLI::ValidationError.
void Convert(const CLI::App& app, const Texts& texts, const Resources& available,
             ServerOptions& options) {
  const int64_t memory = ConvertDevice(app, texts, available, options);
  std::set<std::string> names;
  for (const std::string& text : texts.models) {
    options.models.push_back(ParseModelOptions(text, memory));
    if (!names.insert(options.models.back().name).second) {
      throw CLI::ValidationError("--model", "names " + options.models.back().name + " twice");
    }
  }
  try {
    ResolveDraftModels(texts.draft_model, options.models);
  } catch (const std::invalid_argument& e) {
    throw CLI::ValidationError(e.what());
  }
  options.log_format = texts.log_format == "json" ? LogFormat::kJson : LogFormat::kText;

  TransportOptions& transport = options.transport;
  if (!texts.tls_cert.empty() || !texts.tls_key.empty() || !texts.tls_client_ca.empty()) {
    transport.tls =
        TlsOptions{.certificate = texts.tls_cert, .key = texts.tls_key, .client_authority = {}};
    if (!texts.tls_client_ca.empty()) transport.tls->client_authority = texts.tls_client_ca;
  }
  if (!texts.tokens.empty()) transport.access.tokens = texts.tokens;
  if (texts.http != kNoHttp) transport.http = texts.http;
  try {
    options.tracing =
        ReadTracingOptions(texts.otlp_endpoint, [](const char* name) { return std::getenv(name); });
  } catch (const std::invalid_argument& e) {
    throw CLI::ValidationError(e.what());
  }
}

// Throws CLI::ValidationError unless TLS has a certificate and a key, and addresses beyond this
// machine have TLS and authentication, or --insecure.
void CheckWhoIsLetIn(const TransportOptions& transport) {
  const std::optional<TlsOptions>& tls = transport.tls;
  if (tls && tls->certificate.empty()) {
    throw CLI::ValidationError("--tls-cert",
                               "is missing; required with --tls-key and --tls-client-ca");
  }
  if (tls && tls->key.empty()) {
    throw CLI::ValidationError("--tls-key", "is missing; required with --tls-cert");
  }
  const bool knows_callers = transport.access.tokens || (tls && tls->client_authority);
  if (transport.access.insecure || (tls && knows_callers)) return;
  const auto check = [](const char* flag, const std::string& address) {
    if (IsLoopbackHost(ParseAddress(address)->host)) return;
    throw CLI::ValidationError(
        flag, fmt::format("{} is reachable from other machines; allowed: 127.0.0.1, [::1] and "
                          "localhost; others with --tls-cert, --tls-key and --tokens (or "
                          "--tls-client-ca), or with --insecure",
                          address));
  };
  check("--listen", transport.listen);
  if (transport.http) check("--http", *transport.http);
}

// Throws CLI::ValidationError unless the options of cache events fit together. ZeroMQ has neither
// TLS nor tokens here, and events show the tokens of every client.
void CheckKvEvents(const ServerOptions& options) {
  const std::string& events = options.kv_events;
  if (events != kNoKvEvents && !options.engine.prefix_cache) {
    throw CLI::ValidationError("--kv-events",
                               fmt::format("is {}; allowed with --prefix-cache off: off", events));
  }
  const bool publishes = PublishesKvEvents(events);
  const auto needs_address = [&](const char* flag, const std::string& value) {
    if (publishes || value.empty()) return;
    throw CLI::ValidationError(flag, "is set; allowed: only with --kv-events tcp://HOST:PORT");
  };
  needs_address("--kv-events-replay", options.kv_events_replay);
  needs_address("--kv-events-topic", options.kv_events_topic);
  if (!publishes) return;
  if (options.models.size() > 1) {
    throw CLI::ValidationError(
        "--kv-events", fmt::format("is {} with {} models; allowed: one model, or grpc", events,
                                   options.models.size()));
  }
  const auto check = [&](const char* flag, const std::string& address) {
    if (address.empty() || options.kv_events_insecure) return;
    if (IsLoopbackHost(ZmqHost(address))) return;
    throw CLI::ValidationError(
        flag, fmt::format("{} is reachable from other machines, without authentication; allowed: "
                          "127.0.0.1, [::1] and localhost; others with --kv-events-insecure",
                          address));
  };
  check("--kv-events", events);
  check("--kv-events-replay", options.kv_events_replay);
}

// Throws CLI::ValidationError if two options contradict each other.
void CheckTogether(const ServerOptions& options) {
  const bool draft_models = std::ranges::any_of(options.models, HasDraftModel);
  try {
    CheckFormatsAndDrafts(options.device, draft_models, options);
  } catch (const std::invalid_argument& e) {
    throw CLI::ValidationError("--device", e.what());
  }
  try {
    SplitKvCacheBytes(options);
  } catch (const std::invalid_argument& e) {
    throw CLI::ValidationError(e.what());
  }
  if (draft_models && options.engine.speculation == serving::Speculation::kOff) {
    throw CLI::ValidationError("--speculation", "is off; allowed with draft models: ngram");
  }
  if (options.engine.max_running > options.engine.max_batch_tokens) {
    throw CLI::ValidationError(
        "--max-running",
        fmt::format("is {}; allowed: at most --max-batch-tokens ({}), a row per running sequence",
                    options.engine.max_running, options.engine.max_batch_tokens));
  }
  CheckKvEvents(options);
  const auto needs_http = [&](const char* flag, bool is_set) {
    if (options.transport.http || !is_set) return;
    throw CLI::ValidationError(flag, "is set; allowed: only with --http HOST:PORT");
  };
  needs_http("--http-hosts", !options.transport.http_hosts.empty());
  needs_http("--http-origins", !options.transport.http_origins.empty());
  CheckWhoIsLetIn(options.transport);
}

}  // namespace

bool PublishesKvEvents(const std::string& kv_events) { return kv_events.starts_with(kTcp); }

LoadOptions OpenModel(const ModelOptions& model, const ServerOptions& options) {
  return {.name = model.name,
          .checkpoint =
              ForModel(model.name, [&] { return checkpoint::OpenCheckpoint(model.checkpoint); }),
          .weights = options.weights,
          .cache_format = options.cache_format,
          .backend = options.backend,
          .engine = options.engine,
          .conversion = model.conversion,
          .max_positions = model.max_positions ? model.max_positions : options.max_positions,
          .device = options.device};
}

std::vector<int64_t> SplitKvCacheBytes(const ServerOptions& options) {
  int64_t rest = options.kv_cache_bytes;
  int64_t sharing = 0;
  for (const ModelOptions& model : options.models) {
    // Bounded, so that several huge sizes do not overflow.
    rest = std::max<int64_t>(rest - model.kv_cache_bytes.value_or(0), -1);
    if (!model.kv_cache_bytes) ++sharing;
  }
  if (rest < sharing) {
    throw std::invalid_argument(
        fmt::format("--kv-cache-bytes {} is less than the models' own kv-cache-bytes plus a share "
                    "for {} other models",
                    options.kv_cache_bytes, sharing));
  }
  std::vector<int64_t> bytes;
  for (const ModelOptions& model : options.models) {
    bytes.push_back(model.kv_cache_bytes ? *model.kv_cache_bytes : rest / sharing);
  }
  return bytes;
}

void ResolveDraftModels(const std::optional<std::string>& common,
                        std::vector<ModelOptions>& models) {
  const auto refuse = [&](const std::string& where, const std::string& name,
                          const std::string& why) {
    std::string allowed;
    for (const ModelOptions& model : models) {
      if (!model.draft_model) allowed += (allowed.empty() ? "" : ", ") + model.name;
    }
    throw std::invalid_argument(fmt::format("{}: {} {}; allowed: {}", where, Quoted(name), why,
                                            allowed.empty() ? "no model" : allowed));
  };
  std::set<std::string> drafting;
  const auto check = [&](const std::string& where, const std::string& name) {
    const auto found = std::find_if(models.begin(), models.end(),
                                    [&](const ModelOptions& model) { return model.name == name; });
    if (found == models.end()) refuse(where, name, "is not served");
    if (found->draft_model) refuse(where, name, "has a draft model of its own");
    drafting.insert(name);
  };
  for (const ModelOptions& model : models) {
    if (model.draft_model) check("draft-model of model " + model.name, *model.draft_model);
  }
  if (!common) return;
  check("--draft-model", *common);
  bool drafts = false;
  for (ModelOptions& model : models) {
    if (!model.draft_model && !drafting.contains(model.name)) model.draft_model = common;
    drafts = drafts || model.draft_model == common;
  }
  if (!drafts) {
    throw std::invalid_argument("--draft-model: " + Quoted(*common) +
                                " drafts for no model; allowed: only with a model that it can "
                                "draft for");
  }
}

std::optional<int> ParseServerOptions(int argc, const char* const* argv, ServerOptions* options,
                                      const Resources& available) {
  CLI::App app(
      "Inference server for decoders with MHA, GQA or reduced MLA, over gRPC and HTTP. Reports the "
      "KV-cache bytes of each request.",
      "triptych-server");
  app.footer(
      "Example:\n  triptych-server --model mla=models/shakespeare-mla --kv-cache-bytes 512MiB");
  CLI::Option* config =
      app.set_config("--config", "", "TOML file of options, named as here without the dashes")
          ->envname(VariableName("config"));
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.get_formatter()->column_width(36);
  app.set_version_flag("--version", fmt::format("triptych-server {}", Version()),
                       "Print the version and exit");
  Texts texts;
  DeclareHosting(app, available, *options, texts);
  DeclareCompute(app, *options);
  DeclareScheduling(app, *options, texts);
  DeclareShares(app, *options);
  DeclareAccess(app, *options, texts);
  DeclareProcess(app, available, *options, texts);
  GroupAdvanced(app);

  const auto refuse = [](const std::string& error) {
    std::fprintf(stderr, "triptych-server: %s\n", error.c_str());
    return 2;
  };
  const auto in_config = [&] { return "--config " + config->as<std::string>() + ": "; };
  try {
    ParseSources(app, argc, argv);
    Convert(app, texts, available, *options);
    CheckTogether(*options);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::FileError&) {  // the config file
    return refuse(in_config() + "cannot be read");
  } catch (const CLI::ConfigError& e) {
    return refuse(in_config() + e.what() + "; allowed: options as in --help, without the dashes");
  } catch (const CLI::ParseError& e) {
    return refuse(e.what());
  }
  return std::nullopt;
}

}  // namespace triptych::server
