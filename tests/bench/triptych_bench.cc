// triptych-bench: benchmark of the whole engine without gRPC, on random weights of any shape or on
// a checkpoint. Prints JSON.
#include <ATen/ATen.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/backend/cpu/cpu_model.h"
#include "engine/backend/cpu/pack_weights.h"
#include "engine/backend/model_backend.h"
#include "engine/base/asked_weight_formats.h"
#include "engine/base/ceil_div.h"
#include "engine/base/formats.h"
#include "engine/base/version.h"
#include "engine/checkpoint/config/config_file.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/weights.h"
#include "engine/decoder/write_weights.h"
#include "engine/kernels/context.h"
#include "engine/model/config.h"
#include "engine/serving/engine.h"
#include "tests/bench/instruction_set.h"
#include "tests/bench/median.h"
#include "tests/bench/random_cache.h"
#include "tests/support/random_model.h"
#include "tests/support/recording_sink.h"
#include "tests/support/tokenizer.h"

namespace triptych {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr int64_t kBlockPositions = 16;
constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int64_t kMaxCount = int64_t{1} << 22;

struct Options {
  std::map<std::string, Json> fields;  // fields of config.json that flags set
  std::string model;                   // a checkpoint; random weights if empty
  std::string save;
  AskedWeightFormats weights;
  std::optional<CacheFormat> cache_format;
  std::string instruction_set;  // the machine's best if empty
  bool random_cache = false;
  std::vector<int32_t> prompt_ids;
  int64_t context = 128;
  int64_t batch = 1;
  int64_t waiting = 0;
  int64_t prompt = 512;
  int64_t generate = 64;
  int64_t edit = 0;
  int64_t chunk = 512;
  int64_t threads = std::max(1u, std::thread::hardware_concurrency());
  int64_t repetitions = 3;
  int64_t seed = 1;
};

constexpr const char* kPositionsNeeded =
    "the number of positions (--prompt, --context, --batch, --generate)";

// The config's fields and the flags that set them, longest field first: a field's name may be the
// end of another's.
const std::vector<std::pair<std::string, std::string>>& FieldsAndFlags() {
  static const std::vector<std::pair<std::string, std::string>> all = {
      {"max_position_embeddings", kPositionsNeeded},
      {"num_attention_heads", "--heads"},
      {"num_key_value_heads", "--groups"},
      {"position_embedding", "--positions"},
      {"intermediate_size", "--intermediate-size"},
      {"num_hidden_layers", "--layers"},
      {"qk_rope_head_dim", "--rope-head-dim"},
      {"kv_a_layernorm", "--latent-norm"},
      {"kv_lora_rank", "--rank"},
      {"hidden_size", "--hidden-size"},
      {"vocab_size", "--vocab-size"},
      {"attention \"", "--attention \""},
      {"head_dim", "--head-dim"},
  };
  return all;
}

std::string InFlags(std::string message) {
  for (const auto& [field, flag] : FieldsAndFlags()) {
    for (size_t at = 0; (at = message.find(field, at)) != std::string::npos; at += flag.size()) {
      message.replace(at, field.size(), flag);
    }
  }
  return message;
}

// --- The model --------------------------------------------------------------------------------

// Steps that compute the prompts of a batch; in each, earlier sequences decode one token.
int64_t FillSteps(const Options& options) {
  return CeilDiv(options.batch * options.context,
                 std::max<int64_t>(1, options.chunk - options.batch)) +
         options.batch;
}

// Positions of the longest sequence that these options need.
int64_t PositionsNeeded(const Options& options) {
  const int64_t decoded =
      options.context + options.generate + 1 + (options.random_cache ? 0 : FillSteps(options));
  return std::max({options.prompt + 1, options.context + options.edit + 1, decoded});
}

// A model to measure. Its weights are read, or released, part by part.
struct Source {
  ModelConfig config;
  WeightFormats formats;  // as measured
  std::unique_ptr<WeightSource> weights;
};

// Also saves the weights, if the options ask for it.
Source RandomModel(const Options& options) {
  const WeightFormats formats = options.weights.Over(WeightFormat::kFloat32);
  Json json = options.fields;
  json["max_position_embeddings"] = PositionsNeeded(options);
  json["torch_dtype"] = Name(TensorsFor(formats));
  ModelConfig config;
  try {
    config = checkpoint::ParseModelConfig(json.dump(), "flags");
  } catch (const LoadError& e) {
    throw LoadError(InFlags(e.what()));
  }
  Weights weights = Cast(RandomWeights(config, options.seed), ToScalarType(config.torch_dtype));
  if (!options.save.empty()) SaveCheckpoint(options.save, config, weights);
  return {std::move(config), formats, std::make_unique<WeightsInMemory>(std::move(weights))};
}

// A checkpoint in the formats in which the server serves it.
Source StoredModel(const Options& options) {
  checkpoint::OpenedCheckpoint opened = checkpoint::OpenCheckpoint(options.model);
  const WeightFormats formats = options.weights.Over(StoredFormats(opened.config));
  auto reader = std::make_unique<CheckpointReader>(std::move(opened), TensorsFor(formats));
  ModelConfig config = reader->config();
  if (PositionsNeeded(options) > config.max_position_embeddings) {
    throw LoadError(options.model + ": " + kPositionsNeeded + " is " +
                    std::to_string(PositionsNeeded(options)) + "; allowed: at most " +
                    std::to_string(config.max_position_embeddings));
  }
  return {std::move(config), formats, std::move(reader)};
}

int64_t BlocksFor(int64_t positions) { return CeilDiv(positions, kBlockPositions); }

// A model whose cache is large enough for the measurements.
std::unique_ptr<cpu::CpuModel> MakeModel(const Options& options, const Source& source,
                                         CacheFormat cache_format,
                                         const std::shared_ptr<kernels::KernelContext>& context) {
  ModelConfig config = source.config;
  config.max_position_embeddings = PositionsNeeded(options);
  const int64_t positions =
      options.random_cache ? options.context + options.generate : PositionsNeeded(options);
  const CacheGeometry geometry = MakeCacheGeometry(config, cache_format, kBlockPositions);
  const int64_t blocks = geometry.Groups().count() * std::max(options.batch * BlocksFor(positions),
                                                              BlocksFor(PositionsNeeded(options)));
  cpu::CpuWeights weights =
      cpu::PackWeights(config, *source.weights, source.formats, {}, context->pool);
  return std::make_unique<cpu::CpuModel>(
      config, std::move(weights),
      BackendOptions{.kv_cache_bytes = blocks * geometry.BlockBytes(),
                     .block_positions = kBlockPositions,
                     .cache_format = cache_format},
      context);
}

// --- Measurements -----------------------------------------------------------------------------

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

Json MinimumAndMedian(const std::vector<double>& values) {
  return {{"minimum", *std::min_element(values.begin(), values.end())}, {"median", Median(values)}};
}

struct Decoded {
  std::vector<double> step_seconds;       // by step
  std::vector<double> tokens_per_second;  // by repetition
  std::vector<int32_t> tokens;            // the first sequence's, in the last repetition
  double context = 0;                     // positions of a sequence before the first measured step
};

class Bench {
 public:
  Bench(const Options& options, const Source& source)
      : options_(options),
        config_(source.config),
        formats_(source.formats),
        cache_format_(options.cache_format.value_or(DefaultCacheFormat(formats_.layers))),
        context_(std::make_shared<kernels::KernelContext>(static_cast<int>(options.threads))),
        model_(MakeModel(options, source, cache_format_, context_)),
        generator_(options.seed) {}

  Json Run() {
    Json json = Model();
    Decoded decoded;
    if (options_.generate > 0 && options_.random_cache) decoded = DecodeOverRandomCache();
    MakeEngine();
    if (options_.prompt > 0) json["prefill"] = Prefill();
    if (options_.generate > 0 && !options_.random_cache) decoded = Decode();
    if (options_.generate > 0) {
      json["decode"] = {{"measured", options_.random_cache ? "decoder" : "engine"},
                        {"batch", options_.batch},
                        {"context", decoded.context},
                        {"steps", decoded.step_seconds.size()},
                        {"tokens_per_second", Median(decoded.tokens_per_second)},
                        {"step_seconds", MinimumAndMedian(decoded.step_seconds)}};
    }
    if (options_.edit > 0) json["edit"] = Edit();
    if (!options_.prompt_ids.empty()) json["tokens"] = decoded.tokens;
    return json;
  }

 private:
  Json Model() const {
    return {{"config", Json::parse(checkpoint::ToJson(config_))},
            {"dtype", Name(formats_.layers)},
            {"embedding_dtype", Name(formats_.embeddings)},
            {"expert_dtype", Name(formats_.experts)},
            {"kv_cache_dtype", Name(cache_format_)},
            {"threads", options_.threads},
            {"parameters", ParameterCount(config_)},
            {"active_parameters", ActiveParameterCount(config_)},
            {"weight_bytes", ParameterBytes(config_, formats_)},
            {"cache_bytes_per_position", model_->info().geometry.BytesPerPosition()}};
  }

  // Moves the model into the engine.
  void MakeEngine() {
    engine_ = std::make_unique<serving::Engine>(
        std::move(model_), TestTokenizer(),
        serving::EngineOptions{.max_batch_tokens = options_.chunk,
                               .max_running = options_.batch,
                               .max_waiting = options_.batch + options_.waiting,
                               .prefix_cache = false,
                               .max_slowdown = kNever,
                               .speculation = serving::Speculation::kWherePays},
        serving::EngineClock::now, context_);
  }

  std::vector<int32_t> RandomIds(int64_t count) {
    std::vector<int32_t> ids(count);
    for (int32_t& id : ids) id = static_cast<int32_t>(generator_() % config_.vocab_size);
    return ids;
  }

  // Greedy, without speculation.
  std::shared_ptr<RecordingSink> Submit(std::vector<int32_t> prompt, int64_t max_new_tokens) {
    serving::Request request;
    request.prompt = std::move(prompt);
    request.max_new_tokens = max_new_tokens;
    request.sampling.temperature = 0;
    request.most_drafted = 0;
    return Submit(std::move(request));
  }
  std::shared_ptr<RecordingSink> Submit(serving::Request request) {
    request.id = std::to_string(++requests_);
    request.ignore_eos = true;
    auto sink = std::make_shared<RecordingSink>();
    engine_->Submit(std::move(request), sink);
    return sink;
  }

  void Check(const RecordingSink& sink) const {
    if (sink.rejected) throw std::runtime_error("the engine rejected a request");
    if (sink.completion && sink.completion->reason == serving::FinishReason::kFailed) {
      throw std::runtime_error("a step failed: " + sink.completion->error);
    }
  }

  // Computes prompts one after another, each up to its first token.
  Json Prefill() {
    std::vector<double> seconds;
    for (int64_t i = 0; i <= options_.repetitions; ++i) {  // the first one warms up
      const auto start = Clock::now();
      const auto sink = Submit(RandomIds(options_.prompt), /*max_new_tokens=*/1);
      while (engine_->Step()) {
      }
      if (i > 0) seconds.push_back(Seconds(Clock::now() - start));
      Check(*sink);
    }
    return {{"tokens", options_.prompt},
            {"tokens_per_second", static_cast<double>(options_.prompt) / Median(seconds)},
            {"first_token_seconds", MinimumAndMedian(seconds)}};
  }

  // Engine steps in which every sequence decodes, over the prompts' cache. The system clears a
  // cache's unused memory when it is first written.
  Decoded Decode() {
    Decoded decoded;
    for (int64_t i = 0; i <= options_.repetitions; ++i) {  // the first one warms up
      std::vector<std::shared_ptr<RecordingSink>> sinks;
      for (int64_t s = 0; s < options_.batch; ++s) {
        sinks.push_back(
            Submit(options_.prompt_ids.empty() ? RandomIds(options_.context) : options_.prompt_ids,
                   options_.generate + FillSteps(options_)));
      }
      while (sinks.back()->tokens.empty() && sinks.back()->final_calls == 0) engine_->Step();
      for (int64_t w = 0; w < options_.waiting; ++w) Submit(RandomIds(options_.context), 1);
      decoded.context =
          static_cast<double>(engine_->Stats().positions) / static_cast<double>(options_.batch);
      std::vector<double> seconds;
      for (int64_t step = 0; step < options_.generate; ++step) {
        const auto start = Clock::now();
        engine_->Step();
        seconds.push_back(Seconds(Clock::now() - start));
      }
      for (const auto& sink : sinks) Check(*sink);
      engine_->CancelAll();
      if (i == 0) continue;
      const double total = std::accumulate(seconds.begin(), seconds.end(), 0.0);
      decoded.step_seconds.insert(decoded.step_seconds.end(), seconds.begin(), seconds.end());
      decoded.tokens_per_second.push_back(static_cast<double>(options_.batch * options_.generate) /
                                          total);
      decoded.tokens = sinks.front()->tokens;
    }
    return decoded;
  }

  // One stream that generates a text: without speculation, with it, and with a prediction that
  // differs from the text in one token. The text is sampled, so that it does not repeat itself.
  Json Edit() {
    serving::Request request;
    request.prompt = RandomIds(options_.context);
    request.max_new_tokens = options_.edit;
    request.seed = static_cast<uint64_t>(options_.seed);
    const char* const names[] = {"off", "without_repeats", "edited"};
    std::vector<double> rates[3];
    Json json = {{"tokens", options_.edit}};
    std::vector<int32_t> text;
    for (int64_t i = 0; i <= options_.repetitions; ++i) {  // the first one warms up
      for (int mode = 0; mode < 3; ++mode) {
        request.most_drafted = mode == 0 ? 0 : serving::kMostDrafted;
        request.prediction.clear();
        if (mode == 2) {
          request.prediction = text;
          request.prediction[text.size() / 2] = request.prompt.front();
        }
        const auto sink = Submit(request);
        while (engine_->Step()) {
        }
        Check(*sink);
        if (text.empty()) text = sink->tokens;
        if (sink->tokens != text) throw std::runtime_error("speculation changed the text");
        if (i == 0) continue;
        const serving::RequestUsage& usage = sink->completion->usage;
        rates[mode].push_back(static_cast<double>(options_.edit - 1) / Seconds(usage.decode_time));
        json[names[mode]] = {{"tokens_per_second", Median(rates[mode])},
                             {"drafted", usage.drafted_tokens},
                             {"accepted", usage.accepted_tokens}};
      }
    }
    for (int mode = 1; mode < 3; ++mode) {
      std::vector<double> speedups;  // by repetition: other work of the machine slows all modes
      for (size_t i = 0; i < rates[0].size(); ++i) {
        speedups.push_back(rates[mode][i] / rates[0][i]);
      }
      json[names[mode]]["speedup"] = Median(speedups);
    }
    return json;
  }

  // Model steps without the engine, for contexts that take long to compute: cache and tokens are
  // random.
  Decoded DecodeOverRandomCache() {
    const int64_t blocks =
        BlocksFor(options_.context + options_.generate) * model_->info().geometry.Groups().count();
    for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
      FillRandom(model_->cache(i), options_.batch * blocks);
    }
    std::vector<int32_t> table(options_.batch * blocks);
    std::iota(table.begin(), table.end(), 0);

    Decoded decoded;
    decoded.context = static_cast<double>(options_.context);
    for (int64_t i = 0; i < options_.repetitions; ++i) {
      double total = 0;
      for (int64_t step = -1; step < options_.generate; ++step) {  // the first is a warm-up
        const int64_t position = options_.context + std::max<int64_t>(step, 0);
        StepInput input;  // one token per sequence, with logits
        for (int64_t s = 0; s < options_.batch; ++s) {
          input.sequences.push_back({.blocks = &table[s * blocks],
                                     .start = position,
                                     .count = 1,
                                     .prompt = options_.context});
          input.logit_rows.push_back(s);
        }
        const std::vector<int32_t> random = RandomIds(options_.batch);
        input.ids.assign(random.begin(), random.end());
        const auto start = Clock::now();
        model_->Step(input);
        if (step < 0) continue;
        decoded.step_seconds.push_back(Seconds(Clock::now() - start));
        total += decoded.step_seconds.back();
      }
      decoded.tokens_per_second.push_back(static_cast<double>(options_.batch * options_.generate) /
                                          total);
    }
    return decoded;
  }

  const Options& options_;
  const ModelConfig config_;
  const WeightFormats formats_;
  const CacheFormat cache_format_;
  const std::shared_ptr<kernels::KernelContext> context_;
  std::unique_ptr<cpu::CpuModel> model_;  // null once the engine has it
  std::unique_ptr<serving::Engine> engine_;
  std::mt19937_64 generator_;
  int64_t requests_ = 0;
};

// --- Flags ------------------------------------------------------------------------------------

void AddModelFlags(CLI::App& app, Options& options) {
  options.fields = {
      {"attention", "mha"},           {"hidden_size", 768},        {"num_attention_heads", 12},
      {"num_hidden_layers", 12},      {"intermediate_size", 2048}, {"vocab_size", 32000},
      {"position_embedding", "rope"}, {"norm", "rms_norm"},        {"mlp", "swiglu"}};
  CLI::Option_group* shape = app.add_option_group("Random model");
  auto& fields = options.fields;
  const auto integer = [&](const std::string& flag, const std::string& field,
                           const std::string& help) {
    shape
        ->add_option_function<int64_t>(
            flag, [&fields, field](int64_t value) { fields[field] = value; }, help)
        ->default_str(fields.contains(field) ? fields[field].dump() : "");
  };
  const auto choice = [&](const std::string& flag, const std::string& help,
                          const std::map<std::string, std::map<std::string, Json>>& choices,
                          const std::string& fallback) {
    shape
        ->add_option_function<std::string>(
            flag,
            [&fields, choices](const std::string& name) {
              for (const auto& [field, value] : choices.at(name)) fields[field] = value;
            },
            help)
        ->check(CLI::IsMember(choices))
        ->default_str(fallback);
  };
  choice("--attention", "kind of attention",
         {{"mha", {{"attention", "mha"}}},
          {"gqa", {{"attention", "gqa"}}},
          {"mla", {{"attention", "mla"}}}},
         "mha");
  integer("--hidden-size", "hidden_size", "D");
  integer("--heads", "num_attention_heads", "H");
  integer("--head-dim", "head_dim", "d; D / H if not given");
  integer("--groups", "num_key_value_heads", "G, with --attention gqa");
  integer("--rank", "kv_lora_rank", "r, with --attention mla");
  integer("--rope-head-dim", "qk_rope_head_dim", "d_R, with --attention mla --positions rope");
  shape->add_flag_callback(
      "--latent-norm", [&fields] { fields["kv_a_layernorm"] = true; },
      "normalize the latent, with --attention mla");
  shape->add_flag_callback(
      "--tied-embeddings", [&fields] { fields["tie_word_embeddings"] = true; },
      "the output matrix is the token embedding");
  integer("--layers", "num_hidden_layers", "decoder layers");
  integer("--intermediate-size", "intermediate_size", "width inside the MLP");
  integer("--vocab-size", "vocab_size", "tokens");
  choice("--positions", "how positions enter",
         {{"rope", {{"position_embedding", "rope"}}},
          {"sinusoidal", {{"position_embedding", "sinusoidal"}}},
          {"learned", {{"position_embedding", "learned"}}}},
         "rope");
  choice("--norm", "normalization",
         {{"rms", {{"norm", "rms_norm"}}}, {"layer", {{"norm", "layer_norm"}}}}, "rms");
  choice("--hidden-act", "activation: silu gates (SwiGLU), the others do not",
         {{"silu", {{"mlp", "swiglu"}, {"hidden_act", "silu"}}},
          {"gelu", {{"mlp", "gelu"}, {"hidden_act", "gelu"}}},
          {"gelu_exact", {{"mlp", "gelu"}, {"hidden_act", "gelu_exact"}}}},
         "silu");
  shape->add_option("--save", options.save, "directory to write the model to, as a checkpoint");
  CLI::Option* model =
      app.add_option("--model", options.model,
                     "checkpoint to measure instead of random weights: a directory or a .gguf file")
          ->check(CLI::ExistingPath);
  for (CLI::Option* flag : shape->get_options()) {
    if (flag != shape->get_help_ptr()) model->excludes(flag);
  }
  const auto format = [&app](const std::string& flag, auto& asked, const std::string& help) {
    using Format = typename std::decay_t<decltype(asked)>::value_type;
    app.add_option_function<std::string>(
           flag, [&asked](const std::string& name) { asked = Names<Format>().at(name); }, help)
        ->check(CLI::IsMember(Names<Format>()));
  };
  format("--dtype", options.weights.layers, "weight format [float32; the checkpoint's]");
  format("--embedding-dtype", options.weights.embeddings,
         "format of the embedding and the output matrix [--dtype]");
  format("--expert-dtype", options.weights.experts, "format of routed experts [--dtype]");
  format("--kv-cache-dtype", options.cache_format,
         "dtype of the cache [float32 for float32 weights, else bfloat16]");
}

void AddMeasurementFlags(CLI::App& app, Options& options) {
  const auto count = [&](const std::string& flag, int64_t& value, int64_t least, int64_t most,
                         const std::string& help) {
    return app.add_option(flag, value, help)->check(CLI::Range(least, most))->capture_default_str();
  };
  CLI::Option* context = count("--context", options.context, 1, kMaxCount,
                               "positions in each sequence's cache when decode begins");
  CLI::Option* prompt_ids =
      app.add_option("--prompt-ids", options.prompt_ids,
                     "token ids of every prompt, instead of --context random ones; the generated "
                     "ones are printed")
          ->delimiter(',')
          ->excludes(context);
  count("--batch", options.batch, 1, 1 << 16, "decoding sequences");
  count("--waiting", options.waiting, 0, 1 << 20, "requests that wait in the queue during decode");
  count("--generate", options.generate, 0, kMaxCount, "measured tokens per sequence; 0: no decode");
  count("--prompt", options.prompt, 0, kMaxCount, "tokens of the measured prompt; 0: no prefill");
  count("--edit", options.edit, 0, kMaxCount,
        "tokens of a text that one stream generates with and without speculation; 0: no text");
  count("--chunk", options.chunk, 1, kMaxCount, "maximum token rows per step");
  app.add_flag("--random-cache", options.random_cache,
               "fill the cache with random numbers instead of computing prompts, to decode at long "
               "contexts; measures the decoder only, without scheduling and sampling")
      ->excludes(prompt_ids);
  count("--threads", options.threads, 1, 1024, "compute threads");
  app.add_option("--instruction-set", options.instruction_set,
                 "highest instruction set to use, such as AVX2 [the best]");
  count("--repetitions", options.repetitions, 1, 1000, "repetitions of each measurement");
  count("--seed", options.seed, 0, std::numeric_limits<int64_t>::max(),
        "seed of weights and prompts");
}

int Main(int argc, char** argv) {
  CLI::App app(
      "Measures prefill and decoding of a random decoder, or of a checkpoint, and prints JSON: "
      "sizes, then tokens per second and seconds.");
  app.set_version_flag("--version", "triptych-bench " + std::string(Version()));
  Options options;
  AddModelFlags(app, options);
  AddMeasurementFlags(app, options);
  CLI11_PARSE(app, argc, argv);
  if (!options.prompt_ids.empty()) options.context = std::ssize(options.prompt_ids);
  try {
    if (!options.instruction_set.empty()) UseInstructionSet(options.instruction_set);
    if (options.chunk < options.batch) {
      throw std::runtime_error(
          "--chunk is " + std::to_string(options.chunk) +
          "; a step needs a row for each sequence of --batch = " + std::to_string(options.batch));
    }
    const Source source = options.model.empty() ? RandomModel(options) : StoredModel(options);
    if (options.weights.experts && source.config.experts.n_routed_experts == 0) {
      throw std::runtime_error("--expert-dtype: " + std::string(Name(*options.weights.experts)) +
                               "; allowed: nothing, the model has no experts");
    }
    for (const int32_t id : options.prompt_ids) {
      if (id < 0 || id >= source.config.vocab_size) {
        throw std::runtime_error("--prompt-ids: " + std::to_string(id) + " is not from 0 to " +
                                 std::to_string(source.config.vocab_size - 1));
      }
    }
    Bench bench(options, source);
    std::printf("%s\n", bench.Run().dump(2).c_str());
  } catch (const c10::Error& e) {  // what() would include a backtrace
    std::fprintf(stderr, "triptych-bench: %s\n", e.what_without_backtrace());
    return 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "triptych-bench: %s\n", e.what());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace triptych

int main(int argc, char** argv) { return triptych::Main(argc, argv); }
