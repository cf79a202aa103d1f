// serving_bench: what sharing and fairness cost and save in the engine, without gRPC, on a small
// decoder with random weights, of each kind.
//   prefix  N requests that begin alike, with and without the prefix cache
//   miss    what the prefix cache costs prompts that share nothing
//   pace    those who generate, while one long prompt after another is computed
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

// Notes when each token comes.
struct TimedSink final : RequestSink {
  void OnRejected(SubmitStatus) override { throw std::runtime_error("the engine refused"); }
  void OnDelta(Delta) override { tokens.push_back(Clock::now()); }
  void OnFinish(Completion result) override {
    if (result.reason == FinishReason::kFailed) throw std::runtime_error(result.error);
    completion = std::move(result);
  }
  std::vector<Clock::time_point> tokens;
  std::optional<Completion> completion;
};

// By default the shape of the shipped models, with a context for long prompts.
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

  std::unique_ptr<Engine> Make(bool prefix_cache, int64_t sequences) const {
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

  std::shared_ptr<TimedSink> Submit(Engine& engine, std::vector<int32_t> prompt, int64_t tokens) {
    Request request;
    request.id = std::to_string(++requests_);
    request.prompt = std::move(prompt);
    request.max_new_tokens = tokens;
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    auto sink = std::make_shared<TimedSink>();
    engine.Submit(std::move(request), sink);
    return sink;
  }

  // N requests at once: the median time to the first token and the most bytes reserved.
  void Prefix(const std::string& kind) {
    for (const bool shared : {false, true}) {
      const auto engine = Make(shared, options_.requests + 1);
      std::vector<int32_t> prefix = Ids(options_.prefix);
      std::vector<double> first;
      int64_t bytes = 0, live = 0;
      for (int repetition = 0; repetition <= 3; ++repetition) {  // the first one warms up
        prefix = Ids(options_.prefix);
        std::vector<std::shared_ptr<TimedSink>> sinks;
        const auto start = Clock::now();
        for (int64_t i = 0; i < options_.requests; ++i) {
          std::vector<int32_t> prompt = prefix;
          for (const int32_t id : Ids(24)) prompt.push_back(id);
          sinks.push_back(Submit(*engine, prompt, 128));
        }
        while (engine->Step()) {
          const KvCacheStats stats = engine->Stats();
          if (stats.reserved_bytes <= bytes) continue;
          bytes = stats.reserved_bytes;
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
    const auto once = [&](Engine& engine, const std::vector<int32_t>& prompt) {
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

  // Streams that generate, alone and while long prompts are computed.
  void Pace(const std::string& kind) {
    const auto engine = Make(true, options_.streams + 2);
    std::vector<std::shared_ptr<TimedSink>> streams;
    const int64_t endless = config_.max_position_embeddings - 200;
    for (int64_t i = 0; i < options_.streams; ++i) {
      streams.push_back(Submit(*engine, Ids(128), endless));
    }
    const auto everybody_generates = [&] {
      return std::all_of(streams.begin(), streams.end(),
                         [](const auto& sink) { return !sink->tokens.empty(); });
    };
    while (!everybody_generates()) engine->Step();
    const std::vector<Clock::time_point>& tokens = streams[0]->tokens;
    const auto add_gaps = [&](size_t from, std::vector<double>& gaps) {
      for (size_t i = from + 1; i < tokens.size(); ++i) {
        gaps.push_back(Milliseconds(tokens[i] - tokens[i - 1]));
      }
    };
    std::vector<double> alone, beside, prompt_seconds;
    const auto step_alone = [&] {
      for (int i = 0; i < 20; ++i) engine->Step();
      const size_t from = tokens.size();
      for (int i = 0; i < 300; ++i) engine->Step();
      add_gaps(from, alone);
    };
    step_alone();
    for (int64_t i = 0; i < options_.prompts && !streams[0]->completion; ++i) {
      const size_t from = tokens.size();
      const auto start = Clock::now();
      const auto prompt = Submit(*engine, Ids(options_.prompt), 1);
      while (!prompt->completion && !streams[0]->completion) engine->Step();
      prompt_seconds.push_back(Milliseconds(Clock::now() - start) / 1000);
      add_gaps(from, beside);
      step_alone();  // before and after each prompt, as the streams' own contexts grow
    }
    const bool cut = streams[0]->completion.has_value();
    std::printf(
        "pace   %-3s %lld streams: between tokens alone p50 %.3f p99 %.3f ms; beside prompts "
        "of %lld tokens p50 %.3f p99 %.3f max %.3f ms: p99 %.2fx; a prompt %.1f s%s\n",
        kind.c_str(), static_cast<long long>(options_.streams), Quantile(alone, 0.5),
        Quantile(alone, 0.99), static_cast<long long>(options_.prompt), Quantile(beside, 0.5),
        Quantile(beside, 0.99), Quantile(beside, 1), Quantile(beside, 0.99) / Quantile(alone, 0.99),
        Median(prompt_seconds), cut ? " (cut off: the streams came to their end)" : "");
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
  CLI::App app("What sharing and fairness cost and save in the engine", "serving_bench");
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
  app.add_flag("--never-expand", options.never_expand, "MLA computes prompts reduced");
  CLI11_PARSE(app, argc, argv);
  const auto chosen = [](const std::vector<std::string>& of, const std::string& name) {
    return std::find(of.begin(), of.end(), name) != of.end();
  };
  for (const auto& [name, kind] : Names<AttentionKind>()) {
    if (!chosen(kinds, name)) continue;
    if (chosen(parts, "prefix")) Bench(options, kind, options.prefix + 200).Prefix(name);
    if (chosen(parts, "miss")) Bench(options, kind, options.prefix + 100).Miss(name);
    if (chosen(parts, "pace")) Bench(options, kind, options.prompt + 100).Pace(name);
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
