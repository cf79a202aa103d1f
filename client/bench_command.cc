#include <unistd.h>

#include <cmath>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "client/commands.h"
#include "client/flags.h"
#include "client/load_generator.h"
#include "client/load_report.h"
#include "client/output.h"
#include "client/session.h"
#include "client/status_text.h"
#include "client/workload.h"
#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/quantities.h"
#include "engine/base/request_limits.h"

namespace triptych::client {
namespace {

constexpr int64_t kDefaultRequests = 1000;
// Common server limit per connection; gRPC makes further streams wait.
constexpr int32_t kStreamsPerConnection = 100;
constexpr int32_t kOpenLoopConnections = 10;
// Less than any reply, so that the server notices when a client stops reading.
constexpr int32_t kStallingWindowBytes = 64;
constexpr char kStandardOutput[] = "-";

struct BenchFlags {
  WorkloadOptions workload;
  LoadPace pace;
  std::optional<int32_t> connections;
  bool retry = false;               // off: errors are results
  std::optional<std::string> json;  // a file, or kStandardOutput
  std::optional<std::string> outputs;
};

// Connections with their clients. GetModel connects all of them before the load begins.
class Connections {
 public:
  Connections(Connection connection, int32_t count, bool retry, bool stall)
      : address_(connection.channel.address) {
    connection.channel.retry = retry;
    connection.channel.own_connection = true;
    if (stall) connection.channel.window_bytes = kStallingWindowBytes;
    for (int32_t i = 0; i < count; ++i) {
      clients_.push_back(std::make_unique<Client>(Connect(connection.channel), connection.call));
    }
  }

  const std::string& address() const { return address_; }
  std::vector<Client*> clients() const {
    std::vector<Client*> clients;
    for (const auto& client : clients_) clients.push_back(client.get());
    return clients;
  }
  // Throws Failure if a connection cannot be made or there is no such model.
  v1::Model GetModel(const std::string& name) const {
    v1::GetModelRequest request;
    request.set_model(name);
    v1::GetModelResponse response;
    for (const auto& client : clients_) {
      const grpc::Status status = client->GetModel(request, &response);
      if (!status.ok()) throw Failure(DescribeStatus(status, address_));
    }
    return response.model();
  }

 private:
  const std::string address_;
  std::vector<std::unique_ptr<Client>> clients_;
};

int32_t VocabularyOf(const v1::Model& model) {
  try {
    const Json config = ParseJson(model.config_json(), "the model's config");
    const auto size = config.find("vocab_size");
    if (size != config.end() && size->is_number_integer() && *size >= 1) return *size;
  } catch (const LoadError&) {
  }
  throw Failure("the server reports no vocab_size of " + model.name());
}

// Adds the model's properties to the options. Throws CLI::ValidationError if the load does not fit
// it.
void FitToModel(const v1::Model& model, WorkloadOptions& options) {
  options.model = model.name();
  options.vocabulary = VocabularyOf(model);
  options.context = model.max_positions();
  const int64_t least = int64_t{options.shared_prefix_tokens} + options.prompt_tokens.low() + 1;
  if (least > options.context) {
    throw CLI::ValidationError(
        "--prompt-tokens", "prefix, prompt and one output token need at least " +
                               FormatCount(least) + " tokens; allowed: at most " +
                               FormatCount(options.context) + ", the context of " + model.name());
  }
}

// A line on standard error that is updated in place, if that is a terminal.
class ProgressLine {
 public:
  ~ProgressLine() {
    if (shown_) std::cerr << "\r\x1b[K" << std::flush;
  }
  void Show(const LoadProgress& now) {
    if (!is_terminal_) return;
    std::cerr << "\r" << LoadProgressLine(before_, now) << "\x1b[K" << std::flush;
    before_ = now;
    shown_ = true;
  }

 private:
  const bool is_terminal_ = isatty(STDERR_FILENO) != 0;
  bool shown_ = false;
  LoadProgress before_;
};

void PrintBenchHeading(const BenchFlags& flags, const Connections& connections, size_t count) {
  const LoadPace& pace = flags.pace;
  std::string what = pace.rate ? FormatDecimal(*pace.rate, 1) + " requests per second (Poisson)"
                               : "concurrency " + FormatCount(pace.concurrency);
  Print(flags.workload.model + " at " + connections.address() + ": " + what + " over " +
        FormatCount(static_cast<int64_t>(count)) + (count == 1 ? " connection" : " connections") +
        ", seed " + std::to_string(flags.workload.seed) + "\n");
}

void WriteJson(const std::string& file, const nlohmann::ordered_json& json) {
  if (file == kStandardOutput) {
    Print(json.dump() + "\n");
    return;
  }
  try {
    ReplaceFile(file, json.dump(2) + "\n");
  } catch (const std::runtime_error& error) {
    throw Failure(std::string("--json: ") + error.what());
  }
}

void WriteOutputs(const std::string& file, const LoadResults& results) {
  std::string text;
  for (const auto& [index, tokens] : results.outputs) {
    text += std::to_string(index);
    for (const int32_t token : tokens) text.append(1, ' ').append(std::to_string(token));
    text += '\n';
  }
  try {
    ReplaceFile(file, text);
  } catch (const std::runtime_error& error) {
    throw Failure(std::string("--outputs: ") + error.what());
  }
}

void Bench(const ServerFlags& server, BenchFlags flags) {
  LoadPace& pace = flags.pace;
  if (!pace.requests && !pace.duration) pace.requests = kDefaultRequests;
  const int32_t streams =
      pace.rate ? kOpenLoopConnections * kStreamsPerConnection : pace.concurrency;
  const int32_t count =
      flags.connections.value_or((streams + kStreamsPerConnection - 1) / kStreamsPerConnection);
  const Connection connection = ReadConnection(server);

  const InterruptMask mask;
  const Connections connections(connection, count, flags.retry, flags.workload.stall_ratio > 0);
  FitToModel(connections.GetModel(flags.workload.model), flags.workload);
  const Workload workload(flags.workload);
  LoadGenerator generator(workload, connections.clients(), pace, flags.outputs.has_value());
  const Interrupts interrupts([&] { generator.Interrupt(); });

  const bool text = flags.json != kStandardOutput;
  if (text) PrintBenchHeading(flags, connections, connections.clients().size());
  LoadResults results;
  {
    ProgressLine progress;
    results = generator.Run([&](const LoadProgress& now) { progress.Show(now); });
  }
  if (text) Print(LoadText(results, pace, connections.address()));
  if (flags.json) {
    WriteJson(*flags.json, LoadJson(results, flags.workload, pace, connections.address()));
  }
  if (flags.outputs) WriteOutputs(*flags.outputs, results);
  if (interrupts.interrupted()) throw Interrupted();
  if (results.completed + results.cancelled + results.expired == 0 && results.failed > 0) {
    throw Failure("every request failed");
  }
}

CLI::Option* AddLengths(CLI::App* app, const std::string& name, const std::string& help,
                        const std::function<void(const LengthDistribution&)>& set) {
  return app
      ->add_option_function<std::string>(
          name, [set](const std::string& text) { set(*LengthDistribution::Parse(text)); }, help)
      ->check([](const std::string& text) {
        return LengthDistribution::Parse(text) ? ""
                                               : "must be N, LOW:HIGH or lognormal:MEDIAN:SIGMA "
                                                 "(whole numbers from 1; SIGMA up to 10), not '" +
                                                     text + "'";
      })
      ->type_name("LENGTHS");
}

}  // namespace

void AddBenchCommand(CLI::App& app, const ServerFlags& server) {
  CLI::App* command =
      app.add_subcommand("bench", "Load test of a server: throughput, latencies and cache bytes");
  const auto flags = std::make_shared<BenchFlags>();
  WorkloadOptions& workload = flags->workload;
  LoadPace& pace = flags->pace;
  AddModelFlag(command, kWhichModel, workload.model);
  CLI::Option* concurrency =
      AddNumber<int32_t>(command, "--concurrency", "Closed loop: number of concurrent requests [1]",
                         {1, 1'000'000}, [&pace](int32_t n) { pace.concurrency = n; });
  AddNumber<double>(command, "--rate", "Open loop: mean arrivals per second (Poisson)",
                    {0, 1e6, /*above_low=*/true}, [&pace](double rate) { pace.rate = rate; })
      ->excludes(concurrency);
  AddNumber<int64_t>(command, "--requests", "Number of requests [1000 without --duration]",
                     {1, 1'000'000'000'000}, [&pace](int64_t n) { pace.requests = n; });
  AddNumber<double>(command, "--duration", "Time after which no request starts",
                    {0, 1e7, /*above_low=*/true}, [&pace](double s) { pace.duration = s; })
      ->type_name("SECONDS");
  AddLengths(command, "--prompt-tokens", "Tokens of each prompt [128]",
             [&workload](const LengthDistribution& n) { workload.prompt_tokens = n; });
  AddLengths(command, "--output-tokens", "Tokens of each output [128]",
             [&workload](const LengthDistribution& n) { workload.output_tokens = n; });
  CLI::Option* prefix = AddNumber<int32_t>(
      command, "--shared-prefix-tokens", "Tokens of a shared prefix before each prompt [0]",
      {1, limits::kInt32Max}, [&workload](int32_t n) { workload.shared_prefix_tokens = n; });
  AddNumber<int32_t>(command, "--prefixes", "Number of different shared prefixes [1]",
                     {1, 1'000'000}, [&workload](int32_t n) { workload.prefixes = n; })
      ->needs(prefix);
  command->add_flag("--no-prefix-cache", workload.bypass_prefix_cache,
                    "Neither use the prefix cache nor add to it");
  AddPriorityFlag(command, [&workload](v1::Priority p) { workload.priority = p; });
  AddNumber<double>(command, "--cancel-ratio",
                    "Share of requests to cancel; half before the first token [0]", {0, 1},
                    [&workload](double ratio) { workload.cancel_ratio = ratio; });
  AddLengths(command, "--deadline", "Deadline of each request in milliseconds [none]",
             [&workload](const LengthDistribution& ms) { workload.deadline_ms = ms; });
  AddNumber<double>(command, "--stall-ratio",
                    "Share of requests whose reader stalls after the first message [0]", {0, 1},
                    [&workload](double ratio) { workload.stall_ratio = ratio; });
  AddNumber<double>(command, "--stall", "Duration of a stall [60]", {0, 1e6},
                    [&pace](double seconds) { pace.stall = seconds; })
      ->type_name("SECONDS");
  AddNumber<int32_t>(command, "--connections", "Number of connections [see below]", {1, 10'000},
                     [flags](int32_t n) { flags->connections = n; });
  command->add_flag("--retry", flags->retry, "Retry refused calls, as the other commands do");
  AddNumber<uint64_t>(command, "--seed", "Seed of the load [0]",
                      {0, std::numeric_limits<uint64_t>::max()},
                      [&workload](uint64_t seed) { workload.seed = seed; });
  command
      ->add_option_function<std::string>(
          "--json", [flags](const std::string& file) { flags->json = file; },
          "Write the results as JSON to a file, or instead of the tables")
      ->expected(0, 1)
      ->default_str(kStandardOutput)
      ->type_name("[FILE]");
  command
      ->add_option_function<std::string>(
          "--outputs", [flags](const std::string& file) { flags->outputs = file; },
          "Write one line per completed request: its index and token ids")
      ->type_name("FILE");
  SetFooter(
      command,
      "  triptych bench --model shakespeare-mla --concurrency 64 --requests 2000\n"
      "  triptych bench --model shakespeare-mla --rate 50 --duration 60 \\\n"
      "    --prompt-tokens 32:256 --output-tokens lognormal:60:0.8 --json result.json\n"
      "  triptych bench --model shakespeare-mla --shared-prefix-tokens 200 --prefixes 4\n\n"
      "LENGTHS are N, LOW:HIGH (uniform) or lognormal:MEDIAN:SIGMA. Prompts are random tokens.\n"
      "With --rate, latencies count from the scheduled arrival. There is one connection per 100\n"
      "concurrent requests, and 10 with --rate.\n"
      "Inter-token latency is the time between two messages, divided by the number of tokens in\n"
      "the second, once for each of them; \"between messages\" shows stalls. Percentiles are by\n"
      "nearest rank, of completed requests. Ctrl-C ends the load and prints the results so far.");
  command->callback([&server, flags] { Bench(server, *flags); });
}

}  // namespace triptych::client
