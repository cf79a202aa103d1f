// Tests of the shipped models: they load, their caches take the bytes of
// engine/definitions.md#cache-bytes, and they still generate the same text.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/checkpoint/config/config_file.h"
#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/decoder/decoder.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/weights.h"
#include "engine/loading/loaded_model.h"
#include "engine/text/byte_tokenizer.h"
#include "engine/tools/corpus.h"
#include "engine/tools/evaluate.h"
#include "tests/support/held_out.h"
#include "tests/support/recording_sink.h"
#include "tests/support/refusal.h"
#include "tests/support/regex_grammar.h"
#include "tests/support/shared_data.h"
#include "tests/support/temp_dir.h"

namespace triptych::shipped_models_test {
namespace {

constexpr const char* kPrompt = "First Citizen:\n";
constexpr int64_t kNewTokens = 120;

class ShippedModelTest : public testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path Directory() const {
    return std::filesystem::path(TRIPTYCH_MODELS_DIR) / ("shakespeare-" + GetParam());
  }
};

TEST_P(ShippedModelTest, CostsWhatTheDefinitionsSay) {
  const ModelConfig config = checkpoint::ReadModelConfig(Directory() / "config.json");
  const int64_t mha = 2 * config.hidden_size;
  const int64_t expected = GetParam() == "mha"   ? mha
                           : GetParam() == "gqa" ? 2 * config.num_key_value_heads * config.head_dim
                                                 : config.kv_lora_rank.at(0);
  EXPECT_EQ(Name(config.attention), GetParam());
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    EXPECT_EQ(CacheRowElements(config, layer), expected);
  }
  EXPECT_EQ(MhaRowElements(config), mha);
  EXPECT_GE(config.max_position_embeddings, 512);
  EXPECT_LE(ParameterCount(config), 3'350'000);
  EXPECT_GE(mha / expected, GetParam() == "mha" ? 1 : GetParam() == "gqa" ? 4 : 8);
}

// In float32, so that the text does not depend on the rounding of bfloat16 products. It must not
// depend on float32's rounding either: in float64, the best token leads everywhere by more than
// 1e-3, a hundred times the difference of two float32 implementations.
TEST_P(ShippedModelTest, WritesTheGoldenText) {
  const LoadedModel model = LoadModel({.name = GetParam(),
                                       .checkpoint = checkpoint::OpenCheckpoint(Directory()),
                                       .weights = {.layers = WeightFormat::kFloat32},
                                       .cache_format = CacheFormat::kFloat32,
                                       .backend = {.kv_cache_bytes = int64_t{1} << 24}},
                                      std::make_shared<kernels::KernelContext>(2));
  serving::Request request;
  request.id = "1";
  request.prompt = {model.tokenizer->begin_token().value()};
  for (const int32_t token : model.tokenizer->Encode(kPrompt)) request.prompt.push_back(token);
  request.max_new_tokens = kNewTokens;
  request.sampling.temperature = 0;
  const std::vector<int32_t> prompt = request.prompt;
  const auto sink = std::make_shared<RecordingSink>();
  model.engine->Submit(std::move(request), sink);
  while (model.engine->Step()) {
  }

  const std::string golden =
      ReadFile(std::filesystem::path(TRIPTYCH_GOLDEN_DIR) / ("shakespeare-" + GetParam() + ".txt"));
  EXPECT_EQ(sink->text + "\n", golden);
  ASSERT_TRUE(sink->completion);
  EXPECT_EQ(sink->completion->usage.kv_cache.positions, std::ssize(prompt) + kNewTokens - 1);

  Checkpoint checkpoint = LoadCheckpoint(Directory(), TensorFormat::kFloat32);
  for (auto& [name, tensor] : checkpoint.weights) tensor = tensor.to(at::kDouble);
  const Decoder decoder(checkpoint.config, checkpoint.weights, ComputeType::kFloat64);
  std::vector<int64_t> ids(prompt.begin(), prompt.end());
  ids.insert(ids.end(), sink->tokens.begin(), sink->tokens.end());
  const at::NoGradGuard no_grad;
  const at::Tensor logits =
      decoder.Forward(at::tensor(at::ArrayRef<int64_t>(ids), at::kLong).unsqueeze(0))[0];
  const at::Tensor best =
      std::get<0>(logits.narrow(0, std::ssize(prompt) - 1, kNewTokens).topk(2));  // [new, 2]
  const double smallest_gap = (best.select(1, 0) - best.select(1, 1)).min().item<double>();
  EXPECT_GT(smallest_gap, 1e-3);
}

// Outputs, their log-probabilities, and the drafts, of requests served by a shipped model.
struct Served {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<float>> logprobs;
  int64_t accepted = 0, rejected = 0, preemptions = 0;
};

LoadOptions Options(const std::string& kind, int64_t cache_bytes, serving::Speculation speculation,
                    const LoadedModel* draft_model = nullptr) {
  LoadOptions options{.name = kind,
                      .checkpoint = checkpoint::OpenCheckpoint(
                          std::filesystem::path(TRIPTYCH_MODELS_DIR) / ("shakespeare-" + kind)),
                      .backend = {.kv_cache_bytes = cache_bytes}};
  options.engine.speculation = speculation;
  options.draft_model = draft_model;
  return options;
}

Served ServeAll(const LoadedModel& model) {
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 8; ++i) {
    serving::Request request;
    request.id = std::to_string(i);
    request.prompt = model.tokenizer->Encode(i % 3 == 0 ? "First Citizen:\n" : "ROMEO:\nO, ");
    request.max_new_tokens = 40 + 10 * i;
    request.sampling.temperature = i % 2 == 0 ? 0 : 0.7f;
    if (i % 4 == 3) request.sampling.repetition_penalty = 1.2f;
    if (i == 5) request.grammar = RegexGrammar("(?:[a-z]{2,9} ){3,30}");
    request.seed = i;
    request.logprobs = 2;
    model.engine->Submit(std::move(request), sinks.emplace_back(std::make_shared<RecordingSink>()));
  }
  while (model.engine->Step()) {
  }
  Served served;
  for (const auto& sink : sinks) {
    EXPECT_NE(sink->completion.value().reason, serving::FinishReason::kFailed);
    served.tokens.push_back(sink->tokens);
    served.logprobs.emplace_back();
    for (const serving::TokenLogprobs& one : sink->logprobs) {
      served.logprobs.back().push_back(one.chosen.logprob);
    }
  }
  served.accepted = model.engine->metrics().accepted_tokens.value();
  served.rejected = model.engine->metrics().drafted_tokens.value() - served.accepted;
  const serving::KvCacheStats stats = model.engine->Stats();
  served.preemptions = stats.preemptions;
  EXPECT_EQ(stats.allocated_bytes, 0);
  EXPECT_EQ(stats.pool_bytes, model.info.cache_bytes);
  return served;
}

TEST(DraftModelTest, AShippedModelDraftsForAnotherWithoutChangingABit) {
  constexpr int64_t kCache = int64_t{16} << 20;
  const auto context = std::make_shared<kernels::KernelContext>(2);
  const Served plain =
      ServeAll(LoadModel(Options("mha", kCache, serving::Speculation::kOff), context));
  const LoadedModel small = LoadModel(Options("mla", kCache, serving::Speculation::kOff), context);
  for (const int64_t cache : {kCache, int64_t{4608} * 240}) {
    const LoadedModel big =
        LoadModel(Options("mha", cache, serving::Speculation::kAlways, &small), context);
    EXPECT_EQ(big.draft_model, "mla");
    EXPECT_EQ(big.info.geometry.BytesPerPosition(), 4096 + 512);
    EXPECT_EQ(big.info.cache_bytes, cache / (16 * 4608) * (16 * 4608));
    const Served drafts = ServeAll(big);
    EXPECT_EQ(drafts.tokens, plain.tokens);
    EXPECT_EQ(drafts.logprobs, plain.logprobs);
    EXPECT_GT(drafts.accepted, 50);
    EXPECT_GT(drafts.rejected, 50);
    EXPECT_EQ(drafts.preemptions > 0, cache < kCache);
  }
  EXPECT_EQ(ServeAll(small).accepted, 0);  // serves its own requests, too
}

// The byte tokenizer with one changed token.
class OtherTokenizer final : public Tokenizer {
 public:
  explicit OtherTokenizer(int32_t vocab_size) : vocab_size_(vocab_size) {}

  using Tokenizer::Encode;
  std::vector<int32_t> Encode(std::span<const TextPart> parts) const override {
    return bytes_.Encode(parts);
  }
  std::string Decode(int32_t token) const override {
    return token == 'a' ? "aa" : bytes_.Decode(token);
  }
  std::string_view kind() const override { return "other"; }
  int32_t vocab_size() const override { return vocab_size_; }
  std::optional<int32_t> begin_token() const override { return bytes_.begin_token(); }
  std::span<const int32_t> end_tokens() const override { return bytes_.end_tokens(); }

 private:
  const ByteTokenizer bytes_;
  const int32_t vocab_size_;
};

TEST(DraftModelTest, ADraftModelNeedsTheSameTokenizer) {
  const auto context = std::make_shared<kernels::KernelContext>(1);
  const auto refusal = [&](int32_t vocab_size) {
    LoadedModel small;
    small.name = "small";
    small.tokenizer = std::make_shared<const OtherTokenizer>(vocab_size);
    return RefusalOf<LoadError>([&] {
      LoadModel(Options("mha", 1 << 20, serving::Speculation::kWherePays, &small), context);
    });
  };
  EXPECT_EQ(refusal(300),
            "draft-model small: its tokenizer has 300 tokens; allowed: 258, as that of mha");
  EXPECT_EQ(refusal(258), "draft-model small: its token 97 is \"aa\"; allowed: \"a\", as of mha");
}

// To the card's four decimals, and the difference that threads can make in float32.
TEST_P(ShippedModelTest, HasTheLossThatItsCardSays) {
  const Checkpoint model = LoadCheckpoint(Directory(), TensorFormat::kFloat32);
  ASSERT_EQ(model.config.training_texts.size(), 1u);
  const std::filesystem::path text = SharedData() / "tinyshakespeare.txt";
  if (!std::filesystem::exists(text)) GTEST_SKIP() << "there is no " << text.string();
  const tools::Corpus corpus(text, *checkpoint::LoadTokenizer(Directory()), {}, model.config,
                             GetParam());
  ASSERT_EQ(corpus.identity().sha256, model.config.training_texts[0].sha256);

  const std::string card = ReadFile(Directory() / "README.md");
  const std::string row = "| held-out loss | ";
  ASSERT_NE(card.find(row), std::string::npos);
  EXPECT_NEAR(tools::HeldOutLoss(model, corpus),
              std::stod(card.substr(card.find(row) + row.size())), 2e-4);
}

// In the served form: weights and their inputs in eight bits.
TEST_P(ShippedModelTest, LosesLittleInEightBits) {
  const std::filesystem::path text = SharedData() / "tinyshakespeare.txt";
  if (!std::filesystem::exists(text)) GTEST_SKIP() << "there is no " << text.string();
  const auto loss = [&](WeightFormat dtype) {
    return PrintedLoss({.model = Directory(), .text = text, .weights = {.layers = dtype}});
  };
  EXPECT_LT(loss(WeightFormat::kInt8) - loss(WeightFormat::kFloat32), 0.002);
}

INSTANTIATE_TEST_SUITE_P(Kinds, ShippedModelTest, testing::Values("mha", "gqa", "mla"),
                         [](const auto& kind) { return kind.param; });

}  // namespace
}  // namespace triptych::shipped_models_test
