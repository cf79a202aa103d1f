// Benchmark of prefix sharing and fairness in the engine, without gRPC, on small decoders of each
// kind with random weights.
//   prefix  requests that begin alike, with and without the prefix cache
//   miss    cost of the prefix cache for prompts that share nothing
//   pace    latency of decoding streams during the prefill of long prompts
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/model/config.h"
#include "tests/bench/median.h"
#include "tests/support/random_model.h"
#include "tests/support/recording_sink.h"
#include "tests/support/serving.h"

namespace triptych {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  int threads = 2;
  int64_t prefix = 1000, requests = 16, repetitions = 20;
  int64_t prompt = 32768, prompts = 2, streams = 8;
  int64_t width = 256, layers = 4;
  bool never_expand = false;
  std::string dtype = "bfloat16";
};

double Milliseconds(Clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

// Records when each token arrives.
struct TimedSink final : serving::RequestSink {
  void OnRejected(serving::SubmitStatus) override {
    throw std::runtime_error("the engine rejected a request");
  }
  void OnDelta(serving::Delta) override { tokens.push_back(Clock::now()); }
  void OnFinish(serving::Completion result) override {
    if (result.reason == serving::FinishReason::kFailed) throw std::runtime_error(result.error);
    completion = std::move(result);
  }
  std::vector<Clock::time_point> tokens;
  std::optional<serving::Completion> completion;
};

// By default the shipped models' shape, with a longer context.
ModelConfig Config(const Options& options, AttentionKind kind, int64_t positions) {
  ModelConfig config = SmallModel(kind);
  config.hidden_size = options.width;
  config.intermediate_size = 3 * options.width;
  config.num_hidden_layers = options.layers;
  config.head_dim = options.width < 512 ? 32 : 64;
  config.num_attention_heads = options.width / config.head_dim;
  if (kind != AttentionKind::kMla) {
    config.num_key_value_heads =
        kind == AttentionKind::kMha ? config.num_attention_heads : config.num_attention_heads / 4;
  } else {
    config.num_key_value_heads = config.num_attention_heads;
    config.kv_lora_rank.assign(config.num_hidden_layers, options.width / 2);
  }
  config.max_position_embeddings = positions;
  return config;
}

class Bench {
 public:
  Bench(const Options& options, AttentionKind kind, int64_t positions)
      : options_(options),
        config_(Config(options, kind, positions)),
        weights_(RandomWeights(config_, 1)) {}

  std::unique_ptr<serving::Engine> Make(bool prefix_cache, int64_t sequences) const {
    EngineSetup setup;
    const WeightFormat format = Names<WeightFormat>().at(options_.dtype);
    setup.cache_format = DefaultCacheFormat(format);
    setup.kv_cache_bytes = (sequences * (config_.max_position_embeddings + 16)) *
                           MakeCacheGeometry(config_, setup.cache_format, 16).BytesPerPosition();
    setup.prefix_cache = prefix_cache;
    if (options_.never_expand) setup.expand_from = kNeverExpand;
    return MakeEngine(config_, weights_, setup, format, options_.threads);
  }

  std::vector<int32_t> Ids(int64_t count) {
    std::vector<int32_t> ids(count);
    for (int32_t& id : ids) id = static_cast<int32_t>(random_() % 256);
    return ids;
  }

  std::shared_ptr<TimedSink> Submit(serving::Engine& engine, std::vector<int32_t> prompt,
                                    int64_t tokens) {
    serving::Request request;
    request.id = std::to_string(++requests_);
    request.prompt = std::move(prompt);
    request.max_new_tokens = tokens;
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    auto sink = std::make_shared<TimedSink>();
    engine.Submit(std::move(request), sink);
    return sink;
  }

  // Concurrent requests: median time to the first token, and peak allocated bytes.
  void Prefix(const std::string& kind) {
    for (const bool shared : {false, true}) {
      const auto engine = Make(shared, options_.requests + 1);
      std::vector<int32_t> prefix = Ids(options_.prefix);
      std::vector<double> first;
      int64_t bytes = 0, live = 0;
      for (int repetition = 0; repetition <= 3; ++repetition) {  // the first is a warm-up
        prefix = Ids(options_.prefix);
        std::vector<std::shared_ptr<TimedSink>> sinks;
        const auto start = Clock::now();
        for (int64_t i = 0; i < options_.requests; ++i) {
          std::vector<int32_t> prompt = prefix;
          for (const int32_t id : Ids(24)) prompt.push_back(id);
          sinks.push_back(Submit(*engine, prompt, 128));
        }
        while (engine->Step()) {
          const serving::KvCacheStats stats = engine->Stats();
          if (stats.allocated_bytes <= bytes) continue;
          bytes = stats.allocated_bytes;
          live = stats.running;
        }
        if (repetition == 0) continue;
        for (const auto& sink : sinks) first.push_back(Milliseconds(sink->tokens[0] - start));
      }
      std::printf(
          "prefix %-3s %2lld requests, %lld tokens in common, prefix cache %-3s  "
          "first token median %8.1f ms, last %8.1f ms; peak %6.2f MiB of %lld live\n",
          kind.c_str(), static_cast<long long>(options_.requests),
          static_cast<long long>(options_.prefix), shared ? "on" : "off", Median(first),
          Quantile(first, 1), static_cast<double>(bytes) / (1 << 20), static_cast<long long>(live));
    }
  }

  // Prompts that share nothing, on two engines in turn.
  void Miss(const std::string& kind) {
    const auto without = Make(false, 4), with = Make(true, 4);
    std::vector<double> ratios, milliseconds;
    const auto once = [&](serving::Engine& engine, const std::vector<int32_t>& prompt) {
      const auto start = Clock::now();
      const auto sink = Submit(engine, prompt, 1);
      while (engine.Step()) {
      }
      return Milliseconds(Clock::now() - start);
    };
    for (int64_t i = 0; i <= options_.repetitions; ++i) {
      const std::vector<int32_t> prompt = Ids(options_.prefix);
      double off = 0, on = 0;
      if (i % 2 == 0) {
        off = once(*without, prompt);
        on = once(*with, prompt);
      } else {
        on = once(*with, prompt);
        off = once(*without, prompt);
      }
      if (i == 0) continue;
      ratios.push_back(on / off);
      milliseconds.push_back(off);
    }
    std::printf(
        "miss   %-3s prompt of %lld tokens: %.1f ms without a prefix cache; with it, and "
        "never a hit, %.4f of that (median of %lld pairs)\n",
        kind.c_str(), static_cast<long long>(options_.prefix), Median(milliseconds), Median(ratios),
        static_cast<long long>(options_.repetitions));
  }

  // Streams that decode while long prompts are computed one after another. In turn with them, a
  // second engine runs the same streams undisturbed: the same tokens over the same contexts.
  void DecodePace(const std::string& kind) {
    constexpr int kTurn = 50;  // steps
    struct Streams {
      std::unique_ptr<serving::Engine> engine;
      std::vector<std::shared_ptr<TimedSink>> sinks;
      std::vector<double> gaps;

      bool AtTheirEnd() const { return sinks[0]->completion.has_value(); }
      // Generates every stream's next token. Gaps in which the other engine ran are not recorded.
      void Step(bool note) {
        engine->Step();
        const std::vector<Clock::time_point>& tokens = sinks[0]->tokens;
        if (note) gaps.push_back(Milliseconds(tokens.back() - tokens[tokens.size() - 2]));
      }
    };
    std::vector<std::vector<int32_t>> prompts(options_.streams);
    for (std::vector<int32_t>& prompt : prompts) prompt = Ids(128);
    Streams beside{Make(true, options_.streams + 2), {}, {}};
    Streams alone{Make(true, options_.streams), {}, {}};
    for (Streams* streams : {&beside, &alone}) {
      for (const std::vector<int32_t>& prompt : prompts) {
        streams->sinks.push_back(
            Submit(*streams->engine, prompt, config_.max_position_embeddings - 200));
      }
      const auto warm = [](const auto& sink) { return sink->tokens.size() >= 100; };
      while (!std::all_of(streams->sinks.begin(), streams->sinks.end(), warm)) {
        streams->engine->Step();
      }
    }
    std::vector<double> prompt_seconds;
    for (int64_t i = 0; i < options_.prompts && !beside.AtTheirEnd(); ++i) {
      std::shared_ptr<TimedSink> prompt;
      double milliseconds = 0;
      do {
        beside.Step(false);
        if (!prompt) prompt = Submit(*beside.engine, Ids(options_.prompt), 1);
        int steps = 0;
        const auto start = Clock::now();
        for (; steps < kTurn && !prompt->completion && !beside.AtTheirEnd(); ++steps) {
          beside.Step(true);
        }
        milliseconds += Milliseconds(Clock::now() - start);
        alone.Step(false);
        for (; steps > 0; --steps) alone.Step(true);
      } while (!prompt->completion && !beside.AtTheirEnd());
      prompt_seconds.push_back(milliseconds / 1000);
    }
    std::printf(
        "pace   %-3s %lld streams, contexts to %zu: between tokens undisturbed p50 %.3f p99 %.3f "
        "ms; beside %zu prompts of %lld tokens p50 %.3f p99 %.3f max %.3f ms: p50 %.2fx, p99 "
        "%.2fx; a prompt %.1f s%s\n",
        kind.c_str(), static_cast<long long>(options_.streams),
        128 + beside.sinks[0]->tokens.size(), Quantile(alone.gaps, 0.5), Quantile(alone.gaps, 0.99),
        prompt_seconds.size(), static_cast<long long>(options_.prompt), Quantile(beside.gaps, 0.5),
        Quantile(beside.gaps, 0.99), Quantile(beside.gaps, 1),
        Quantile(beside.gaps, 0.5) / Quantile(alone.gaps, 0.5),
        Quantile(beside.gaps, 0.99) / Quantile(alone.gaps, 0.99), Median(prompt_seconds),
        beside.AtTheirEnd() ? " (cut off: the streams came to their end)" : "");
  }

 private:
  const Options& options_;
  ModelConfig config_;
  Weights weights_;
  std::mt19937_64 random_{1};
  int64_t requests_ = 0;
};

int Main(int argc, char** argv) {
  Options options;
  std::vector<std::string> parts = {"prefix", "miss", "pace"}, kinds = {"mha", "gqa", "mla"};
  CLI::App app("Costs and savings of prefix sharing and fairness in the engine", "serving_bench");
  app.add_option("--parts", parts)->check(CLI::IsMember(parts))->delimiter(',');
  app.add_option("--kinds", kinds)->check(CLI::IsMember(kinds))->delimiter(',');
  app.add_option("--dtype", options.dtype)->check(CLI::IsMember(Names<WeightFormat>()));
  app.add_option("--threads", options.threads)->check(CLI::Range(1, 1024));
  app.add_option("--prefix", options.prefix)->check(CLI::Range(32, 100000));
  app.add_option("--requests", options.requests)->check(CLI::Range(1, 64));
  app.add_option("--repetitions", options.repetitions)->check(CLI::Range(1, 10000));
  app.add_option("--prompt", options.prompt)->check(CLI::Range(64, 1 << 20));
  app.add_option("--prompts", options.prompts)->check(CLI::Range(1, 1000));
  app.add_option("--streams", options.streams)->check(CLI::Range(1, 60));
  app.add_option("--width", options.width)->check(CLI::Range(128, 4096));
  app.add_option("--layers", options.layers)->check(CLI::Range(1, 64));
  app.add_flag("--never-expand", options.never_expand,
               "compute MLA prompts with reduced attention");
  CLI11_PARSE(app, argc, argv);
  const auto chosen = [](const std::vector<std::string>& of, const std::string& name) {
    return std::find(of.begin(), of.end(), name) != of.end();
  };
  for (const auto& [name, kind] : Names<AttentionKind>()) {
    if (!chosen(kinds, name)) continue;
    if (chosen(parts, "prefix")) Bench(options, kind, options.prefix + 200).Prefix(name);
    if (chosen(parts, "miss")) Bench(options, kind, options.prefix + 100).Miss(name);
    if (chosen(parts, "pace")) Bench(options, kind, options.prompt + 100).DecodePace(name);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace triptych

int main(int argc, char** argv) {
  try {
    return triptych::Main(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "serving_bench: %s\n", e.what());
    return 1;
  }
}
