// server_bench: what gRPC adds to a decoding step. The same sequences decode in an engine alone and
// as streams of a server in this process, whose clients, in it too, compete for its CPUs.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <ctime>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "client/client.h"
#include "engine/base/ceil_div.h"
#include "engine/base/version.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/kernels/context.h"
#include "engine/loading/loaded_model.h"
#include "engine/model/config.h"
#include "server/server.h"
#include "tests/bench/median.h"

namespace triptych {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string model;
  int64_t streams = 64;
  int64_t context = 64;
  int64_t generate = 256;
  int64_t repetitions = 3;
  int threads = std::max(1, server::AvailableResources().cpus);
};

struct StepTime {
  double wall = 0;
  double cpu = 0;  // of all threads of the process
};

// The time in which every stream decodes: from the first token of the last of them to start, to the
// last token of the first to end. Thread-safe.
class DecodingPhase {
 public:
  explicit DecodingPhase(const Options& options)
      : generate_(options.generate), tokens_(options.streams) {}

  void AddTokens(int64_t stream, int64_t count) {
    const std::lock_guard lock(mutex_);
    int64_t& tokens = tokens_[stream];
    if (tokens == 0 && count > 0) ++started_;
    tokens += count;
    total_ += count;
    if (!begin_ && started_ == std::ssize(tokens_)) begin_ = Now();
    if (!end_ && tokens == generate_) end_ = Now();
  }
  void End(const std::string& error) {
    const std::lock_guard lock(mutex_);
    ++ended_;
    if (!error.empty()) error_ = error;
    changed_.notify_all();
  }

  // Waits until every stream has ended. Throws std::runtime_error if one failed.
  StepTime SecondsPerStep() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_ == std::ssize(tokens_); });
    if (!error_.empty()) throw std::runtime_error(error_);
    if (!begin_ || !end_ || begin_->tokens >= end_->tokens) {
      throw std::runtime_error("--generate " + std::to_string(generate_) +
                               ": a stream ended before all had begun; allowed: more");
    }
    const double steps =
        static_cast<double>(end_->tokens - begin_->tokens) / static_cast<double>(tokens_.size());
    return {std::chrono::duration<double>(end_->time - begin_->time).count() / steps,
            static_cast<double>(end_->cpu - begin_->cpu) / CLOCKS_PER_SEC / steps};
  }

 private:
  struct Moment {
    Clock::time_point time;
    std::clock_t cpu;
    int64_t tokens;  // of all streams until then
  };

  Moment Now() const { return {Clock::now(), std::clock(), total_}; }

  const int64_t generate_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int64_t> tokens_;  // of each stream
  int64_t total_ = 0;
  int64_t started_ = 0;
  int64_t ended_ = 0;
  std::string error_;
  std::optional<Moment> begin_, end_;
};

// Random bytes, different in every stream and the same each time.
std::vector<int32_t> Prompt(const Options& options, int64_t stream) {
  std::mt19937_64 generator(stream);
  std::vector<int32_t> ids(options.context);
  for (int32_t& id : ids) id = static_cast<int32_t>(generator() % 256);
  return ids;
}

class Sink final : public serving::RequestSink {
 public:
  Sink(DecodingPhase& phase, int64_t stream) : phase_(phase), stream_(stream) {}
  void OnRejected(serving::SubmitStatus) override { phase_.End("the engine rejected a request"); }
  void OnDelta(serving::Delta) override { phase_.AddTokens(stream_, 1); }
  void OnFinish(serving::Completion completion) override { phase_.End(completion.error); }

 private:
  DecodingPhase& phase_;
  const int64_t stream_;
};

StepTime MeasureEngine(const Options& options, const LoadedModel& model) {
  DecodingPhase phase(options);
  for (int64_t stream = 0; stream < options.streams; ++stream) {
    serving::Request request;
    request.id = std::to_string(stream);
    request.prompt = Prompt(options, stream);
    if (const auto begin = model.tokenizer->begin_token()) {
      request.prompt.insert(request.prompt.begin(), *begin);
    }
    request.max_new_tokens = options.generate;
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    model.engine->Submit(std::move(request), std::make_shared<Sink>(phase, stream));
  }
  while (model.engine->Step()) {
  }
  return phase.SecondsPerStep();
}

class Stream final : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  Stream(const Options& options, v1::InferenceService::Stub& stub, DecodingPhase& phase,
         int64_t index)
      : phase_(phase), index_(index) {
    const std::vector<int32_t> prompt = Prompt(options, index);
    request_.mutable_tokens()->mutable_ids()->Add(prompt.begin(), prompt.end());
    request_.set_max_new_tokens(static_cast<int32_t>(options.generate));
    request_.mutable_sampling()->set_temperature(0);
    request_.set_ignore_eos(true);
    stub.async()->Generate(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    phase_.AddTokens(index_, response_.token_ids_size());
    StartRead(&response_);
  }
  void OnDone(const grpc::Status& status) override {
    phase_.End(status.ok() ? "" : "a stream failed: " + status.error_message());
  }

 private:
  DecodingPhase& phase_;
  const int64_t index_;
  grpc::ClientContext context_;
  v1::GenerateRequest request_;
  v1::GenerateResponse response_;
};

// Streams in turn over the channels.
StepTime MeasureServer(const Options& options,
                       const std::vector<std::shared_ptr<grpc::Channel>>& channels) {
  std::vector<std::unique_ptr<v1::InferenceService::Stub>> stubs;
  for (const auto& channel : channels) stubs.push_back(v1::InferenceService::NewStub(channel));
  DecodingPhase phase(options);
  std::vector<std::unique_ptr<Stream>> streams;
  for (int64_t i = 0; i < options.streams; ++i) {
    streams.push_back(std::make_unique<Stream>(options, *stubs[i % stubs.size()], phase, i));
  }
  return phase.SecondsPerStep();
}

// A channel to `address` with a connection of its own.
std::shared_ptr<grpc::Channel> OwnConnection(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

void Measure(const Options& options) {
  LoadOptions host{.name = "model", .checkpoint = checkpoint::OpenCheckpoint(options.model)};
  const ModelConfig& config = host.checkpoint.config;
  const int64_t positions = 1 + options.context + options.generate;
  if (positions > config.max_position_embeddings) {
    throw std::runtime_error("--context and --generate make " + std::to_string(positions) +
                             " positions; allowed: at most " +
                             std::to_string(config.max_position_embeddings));
  }
  const CacheGeometry geometry = MakeCacheGeometry(config, DefaultCacheFormat(config.torch_dtype),
                                                   host.backend.block_positions);
  host.backend.kv_cache_bytes =
      options.streams * CeilDiv(positions, geometry.block_positions) * geometry.BlockBytes();
  host.engine.max_running = options.streams;
  host.engine.max_batch_tokens = std::max(host.engine.max_batch_tokens, options.streams);

  server::ServerOptions served;
  served.transport.listen = "127.0.0.1:0";
  served.models = {{.name = host.name, .checkpoint = options.model, .kv_cache_bytes = {}}};
  served.kv_cache_bytes = host.backend.kv_cache_bytes;
  served.engine = host.engine;
  served.threads = options.threads;
  server::SetUpLogging(server::LogFormat::kText, "warning");
  server::Server server(served);
  const LoadedModel model =
      LoadModel(host, std::make_shared<kernels::KernelContext>(options.threads));

  const std::vector<std::shared_ptr<grpc::Channel>> one = {client::Connect(server.address())};
  std::vector<std::shared_ptr<grpc::Channel>> own;
  for (int64_t i = 0; i < options.streams; ++i) own.push_back(OwnConnection(server.address()));
  const std::string streams = std::to_string(options.streams);
  struct Way {
    std::string name;
    std::function<StepTime()> measure;
    std::vector<double> wall = {};
    std::vector<double> cpu = {};
  };
  std::vector<Way> ways = {
      {"engine alone", [&] { return MeasureEngine(options, model); }},
      {"server, 1 connection", [&] { return MeasureServer(options, one); }},
      {"server, " + streams + " connections", [&] { return MeasureServer(options, own); }}};
  for (int64_t i = 0; i <= options.repetitions; ++i) {  // the first one warms up
    for (Way& way : ways) {
      const StepTime seconds = way.measure();
      if (i == 0) continue;
      way.wall.push_back(seconds.wall);
      way.cpu.push_back(seconds.cpu);
    }
  }

  std::printf("%s: %lld parameters, %d threads, %lld streams of %lld + %lld tokens\n",
              options.model.c_str(), static_cast<long long>(model.parameters), options.threads,
              static_cast<long long>(options.streams), static_cast<long long>(options.context),
              static_cast<long long>(options.generate));
  std::printf("%-22s %10s %10s %10s %10s %10s %7s %10s\n", "us of a step", "median", "least",
              "most", "+ a step", "+ a token", "+ %", "CPU");
  const double engine = Median(ways[0].wall);
  for (const Way& way : ways) {
    const auto [least, most] = std::minmax_element(way.wall.begin(), way.wall.end());
    const double added = Median(way.wall) - engine;
    std::printf("%-22s %10.1f %10.1f %10.1f %10.1f %10.2f %7.1f %10.1f\n", way.name.c_str(),
                Median(way.wall) * 1e6, *least * 1e6, *most * 1e6, added * 1e6,
                added * 1e6 / static_cast<double>(options.streams), 100 * added / engine,
                Median(way.cpu) * 1e6);
  }
}

int Main(int argc, char** argv) {
  CLI::App app(
      "Measures a step in which every sequence decodes, in the engine alone and through gRPC on "
      "loopback with the clients in the same process, and prints what the server adds: medians of "
      "the repetitions, and the CPU time of all threads, the clients' included.");
  app.set_version_flag("--version", "server_bench " + std::string(Version()));
  Options options;
  app.add_option("--model", options.model, "checkpoint")->required()->check(CLI::ExistingDirectory);
  const auto count = [&](const std::string& flag, auto& value, const std::string& help) {
    app.add_option(flag, value, help)->check(CLI::Range(1, 1 << 16))->capture_default_str();
  };
  count("--streams", options.streams, "sequences that decode at once");
  count("--context", options.context, "tokens of each prompt");
  count("--generate", options.generate, "tokens of each stream");
  count("--repetitions", options.repetitions, "of which the median is printed");
  count("--threads", options.threads, "compute threads; those of gRPC come on top");
  CLI11_PARSE(app, argc, argv);
  try {
    Measure(options);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "server_bench: %s\n", e.what());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace triptych

int main(int argc, char** argv) { return triptych::Main(argc, argv); }
