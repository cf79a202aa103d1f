// Benchmark of output by a JSON Schema: compilation, and the choice of tokens compared with the
// model's step before it. Logits make the engine write given documents of the schema.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/formats.h"
#include "engine/base/version.h"
#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/grammar/compile.h"
#include "engine/grammar/json_schema.h"
#include "engine/grammar/token_grammar.h"
#include "engine/serving/engine.h"
#include "tests/bench/given_logits.h"
#include "tests/bench/median.h"

namespace triptych {
namespace {

using Schema = nlohmann::ordered_json;

struct Options {
  std::string tokenizer;
  int64_t batch = 8;
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::string dtype = "bfloat16";
};

constexpr int64_t kVocabulary = 151'936;
constexpr int64_t kMostTokens = 1000;  // of a document

// Kinds of properties, in turn.
const char* const kProperties[] = {
    R"({"type": "string", "description": "any text"})",
    R"({"type": "integer", "description": "a count", "minimum": 0, "maximum": 1000})",
    R"({"type": "string", "description": "a short text", "maxLength": 40})",
    R"({"type": "boolean"})",
    R"({"type": "array", "items": {"type": "string"}, "maxItems": 5})",
    R"({"type": "number", "description": "a measured value"})",
    R"({"enum": ["red", "green", "blue", "dark blue"]})",
    R"({"type": "string", "format": "date-time"})",
    R"({"type": ["string", "null"], "maxLength": 100})",
};

// An object of ten properties, the last of which is another such object below `levels`.
Schema MakeSchema(int levels) {
  Schema properties = Schema::object(), required = Schema::array();
  for (size_t i = 0; i < 10; ++i) {
    const std::string name = "property_" + std::to_string(levels) + "_" + std::to_string(i);
    properties[name] = i == 9 && levels > 1
                           ? MakeSchema(levels - 1)
                           : Schema::parse(kProperties[i % std::size(kProperties)]);
    required.push_back(name);
  }
  return {{"type", "object"},
          {"properties", properties},
          {"required", required},
          {"additionalProperties", false}};
}

std::string Words(size_t most, std::mt19937_64& random) {
  const char* const words[] = {"the", "model",  "reads", "a",      "long", "text", "of",   "Zürich",
                               "and", "writes", "its",   "answer", "as",   "JSON", "again"};
  std::string text;
  while (true) {
    const std::string word = words[random() % std::size(words)];
    if (text.size() + word.size() + 1 > most) return text;
    text += (text.empty() ? "" : " ") + word;
  }
}

// A random value that a schema of MakeSchema accepts.
Schema MakeValue(const Schema& schema, std::mt19937_64& random) {
  if (schema.contains("enum")) return schema["enum"][random() % schema["enum"].size()];
  const std::string type = schema["type"].is_array() ? "string" : schema["type"];
  if (type == "integer") return random() % 1000;
  if (type == "number") return static_cast<double>(random() % 100'000) / 64;
  if (type == "boolean") return random() % 2 == 0;
  if (type == "array") {
    Schema list = Schema::array();
    for (size_t i = random() % 5; i > 0; --i) list.push_back(Words(20, random));
    return list;
  }
  if (type == "object") {
    Schema object = Schema::object();
    for (const auto& [name, of] : schema["properties"].items())
      object[name] = MakeValue(of, random);
    return object;
  }
  if (schema.contains("format")) return "2026-11-28T01:02:03Z";
  return Words(schema.value("maxLength", 60), random);
}

// Expects the tokens of a document.
struct DocumentSink final : CountingSink {
  explicit DocumentSink(std::vector<int32_t> of) : document(std::move(of)) {}
  void OnDelta(serving::Delta delta) override {
    writes_it = writes_it && delta.token == next();
    CountingSink::OnDelta(std::move(delta));
  }
  int32_t next() const { return document[tokens]; }

  std::vector<int32_t> document;
  bool writes_it = true;
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        tokenizer_(checkpoint::LoadTokenizer(options.tokenizer)),
        schema_(MakeSchema(3)) {}

  void Run() {
    std::vector<std::string> texts(tokenizer_->vocab_size());
    for (int32_t token = 0; token < tokenizer_->vocab_size(); ++token) {
      texts[token] = tokenizer_->Decode(token);
    }
    for (const int32_t token : tokenizer_->end_tokens()) texts[token].clear();
    std::vector<double> vocabularies, grammars;
    std::shared_ptr<const grammar::Vocabulary> vocabulary;
    std::shared_ptr<const grammar::TokenGrammar> grammar;
    const std::string text = schema_.dump(2);
    for (int i = 0; i < 11; ++i) {
      const auto start = GivenLogits::Clock::now();
      vocabulary = std::make_shared<grammar::Vocabulary>(texts);
      const auto made = GivenLogits::Clock::now();
      grammar = Compile(text, vocabulary);
      vocabularies.push_back(Microseconds(made - start));
      grammars.push_back(Microseconds(GivenLogits::Clock::now() - made));
    }
    std::printf("vocabulary of %d tokens: %.1f ms; schema of %td lines: %.2f ms (medians of 11)\n",
                tokenizer_->vocab_size(), Median(vocabularies) / 1000,
                std::count(text.begin(), text.end(), '\n') + 1, Median(grammars) / 1000);
    GivenEngine made = MakeGivenEngine({.vocab_size = kVocabulary,
                                        .batch = options_.batch,
                                        .positions = kMostTokens + 2 * options_.batch,
                                        .threads = options_.threads,
                                        .dtype = options_.dtype},
                                       tokenizer_);
    model_ = made.model;
    engine_ = std::move(made.engine);
    std::printf("choice of tokens at %lld sequences, %d threads, percent of the model's step\n",
                static_cast<long long>(options_.batch), options_.threads);
    std::printf("%-34s %10s %8s %8s %8s\n", "output", "step us", "median", "mean", "most");
    Measure("without a schema", nullptr, 1);
    Measure("the schema's first documents", grammar, 1);
    Measure("other documents of the schema", grammar, 2);
  }

 private:
  static std::shared_ptr<const grammar::TokenGrammar> Compile(
      const std::string& schema, std::shared_ptr<const grammar::Vocabulary> vocabulary) {
    grammar::Expressions expressions;
    const grammar::Expression start = grammar::ParseJsonSchema(expressions, schema);
    return std::make_shared<grammar::TokenGrammar>(
        std::make_shared<grammar::Grammar>(grammar::Compile(expressions, start)),
        std::move(vocabulary));
  }

  // Makes the next token of its document the only likely one of each row.
  void Give(const std::vector<std::shared_ptr<DocumentSink>>& sinks) {
    for (size_t row = 0; row < sinks.size(); ++row) {
      float& logit = model_->given[row * kVocabulary + sinks[row]->next()];
      raised_.emplace_back(&logit, logit);
      logit = 100;
    }
  }
  void Restore() {
    for (const auto& [logit, value] : raised_) *logit = value;
    raised_.clear();
  }

  void Measure(const char* name, std::shared_ptr<const grammar::TokenGrammar> grammar,
               uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    if (model_->given.empty()) {
      model_->given.resize(options_.batch * kVocabulary);
      for (float& logit : model_->given) logit = 3 * normal(random);
    }
    std::vector<std::shared_ptr<DocumentSink>> sinks;
    size_t shortest = kMostTokens;
    for (int64_t i = 0; i < options_.batch; ++i) {
      sinks.push_back(
          std::make_shared<DocumentSink>(tokenizer_->Encode(MakeValue(schema_, random).dump())));
      shortest = std::min(shortest, sinks.back()->document.size());
      serving::Request request;
      request.id = std::to_string(++requests_);
      request.seed = i;
      request.prompt = {1};
      request.max_new_tokens = kMostTokens;
      request.sampling = {.temperature = 0.8f, .top_p = 0.9f};
      request.ignore_eos = true;
      request.grammar = grammar;
      engine_->Submit(std::move(request), sinks.back());
    }
    std::vector<double> steps, choices;
    // A step starts one sequence: the last has its first token after `batch` steps.
    for (size_t step = 0; step + 1 < shortest; ++step) {
      Give(sinks);
      engine_->Step();
      Restore();
      if (static_cast<int64_t>(step) < options_.batch) continue;
      choices.push_back(Microseconds(GivenLogits::Clock::now() - model_->ended));
      steps.push_back(Microseconds(model_->took));
    }
    engine_->CancelAll();
    for (const auto& sink : sinks) {
      if (!sink->writes_it) throw std::runtime_error("a sequence does not write its document");
    }
    const double step = Median(steps);
    std::printf("%-34s %10.0f %8.2f %8.2f %8.2f\n", name, step, 100 * Median(choices) / step,
                100 * Mean(choices) / step,
                100 * *std::max_element(choices.begin(), choices.end()) / step);
    std::fflush(stdout);
  }

  static double Mean(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  }

  const Options options_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const Schema schema_;
  GivenLogits* model_ = nullptr;  // owned by the engine
  std::unique_ptr<serving::Engine> engine_;
  std::vector<std::pair<float*, float>> raised_;
  int64_t requests_ = 0;
};

int Main(int argc, char** argv) {
  CLI::App app(
      "Measures the compilation of a nested schema of 30 properties, and the choice of tokens by "
      "it, beside a step of the 110M Llama shape with a vocabulary of 151,936 tokens.");
  app.set_version_flag("--version", "grammar_bench " + std::string(Version()));
  Options options;
  app.add_option("--tokenizer", options.tokenizer,
                 "directory or GGUF file with a tokenizer of at most 151,936 tokens")
      ->required();
  app.add_option("--batch", options.batch, "decoding sequences")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "compute threads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--dtype", options.dtype, "weight format")
      ->check(CLI::IsMember(Names<WeightFormat>()))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  Bench(options).Run();
  return 0;
}

}  // namespace
}  // namespace triptych

int main(int argc, char** argv) {
  try {
    return triptych::Main(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "grammar_bench: %s\n", e.what());
    return 1;
  }
}
