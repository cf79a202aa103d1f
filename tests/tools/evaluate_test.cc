#include "engine/tools/evaluate.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/write_weights.h"
#include "engine/tools/digest.h"
#include "tests/support/held_out.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace triptych::tools::evaluate_test {
namespace {

using testing::HasSubstr;

class EvaluateTest : public testing::Test {
 protected:
  std::string Printed(const ModelConfig& config) const {
    const std::filesystem::path model = dir_.path() / "model";
    std::filesystem::remove_all(model);
    SaveCheckpoint(model, config, RandomWeights(config, 1));
    testing::internal::CaptureStdout();
    Evaluate({.model = model, .text = file_});
    return testing::internal::GetCapturedStdout();
  }

  const TempDir dir_;
  const std::filesystem::path file_ = dir_.path() / "play.txt";
  const std::string text_ = std::string(1000, 'x');
};

TEST_F(EvaluateTest, SaysWhatTheTokensAreToTheModel) {
  WriteFile(file_, text_);
  ModelConfig config = SmallModel(AttentionKind::kGqa);
  EXPECT_THAT(Printed(config), HasSubstr(" nats per token ("));
  EXPECT_THAT(
      Printed(config),
      HasSubstr(" over the last 100 tokens of play.txt, without a record of what the model was "
                "trained on, computed in float32"));
  config.training_texts = {{std::string(64, '0'), 0.5}};
  EXPECT_THAT(
      Printed(config),
      HasSubstr(" over the last 100 tokens of play.txt, which is not among the model's recorded "
                "training texts, "));
  config.training_texts.push_back({Sha256(text_), 0.25});
  EXPECT_THAT(Printed(config), HasSubstr(" over 250 held-out tokens, "));
}

// Served and trained models agree: in float32 up to rounding, with integers approximately.
TEST_F(EvaluateTest, TheLossIsThatOfTheServedModel) {
  std::string text(2000, ' ');
  std::mt19937 generator(1);
  for (char& c : text) c = static_cast<char>('a' + generator() % 16);
  WriteFile(file_, text);
  std::vector<NamedConfig> models = EachKind();
  models.push_back({"Windows", SmallModel(AttentionKind::kGqa)});
  models.back().config.sliding_window = 7;
  models.back().config.layer_types = {LayerType::kSliding, LayerType::kFull};
  for (const NamedConfig& named : models) {
    SCOPED_TRACE(named.name);
    const std::filesystem::path model = dir_.path() / "model";
    std::filesystem::remove_all(model);
    SaveCheckpoint(model, named.config, RandomWeights(named.config, 1));
    const auto loss = [&](WeightFormat dtype, CacheFormat cache) {
      return PrintedLoss(
          {.model = model, .text = file_, .weights = {.layers = dtype}, .cache = cache});
    };
    const std::shared_ptr<const Tokenizer> tokenizer = checkpoint::LoadTokenizer(model);
    const Corpus corpus(file_, *tokenizer, {}, named.config, model.string());
    const double expected = HeldOutLoss(LoadCheckpoint(model, TensorFormat::kFloat32), corpus);
    EXPECT_NEAR(loss(WeightFormat::kFloat32, CacheFormat::kFloat32), expected, 1e-4);  // as printed
    // Weights are rounded to 2^-9, to 1/254 and to 1/16 of the largest; errors add up over layers.
    EXPECT_NEAR(loss(WeightFormat::kBFloat16, CacheFormat::kBFloat16), expected, 0.02);
    EXPECT_NEAR(loss(WeightFormat::kInt8, CacheFormat::kFloat32), expected, 0.02);
    EXPECT_NEAR(loss(WeightFormat::kFloat32, CacheFormat::kInt8), expected, 0.02);
    EXPECT_NEAR(loss(WeightFormat::kFloat32, CacheFormat::kInt4), expected, 0.1);
    const double four_bits = loss(WeightFormat::kInt4, CacheFormat::kFloat32);
    EXPECT_NEAR(four_bits, expected, 0.3);
    EXPECT_GT(std::abs(four_bits - expected), 2e-4);
  }
}

// Published models have contexts that need more memory than training here has.
TEST_F(EvaluateTest, ALongContextIsMeasuredInShorterWindows) {
  constexpr int64_t kLength = 2048;
  std::string text(3000, ' ');
  std::mt19937 generator(1);
  for (char& c : text) c = static_cast<char>('a' + generator() % 16);
  WriteFile(file_, text);
  ModelConfig config = SmallModel(AttentionKind::kGqa);
  config.position_embedding = PositionEmbedding::kRope;
  config.max_position_embeddings = 1 << 20;
  const std::filesystem::path directory = dir_.path() / "model";
  SaveCheckpoint(directory, config, RandomWeights(config, 1));
  const Checkpoint model = LoadCheckpoint(directory, TensorFormat::kFloat32);
  const Decoder decoder(model.config, model.weights, ComputeType::kFloat32);
  const Corpus corpus = TestCorpus(file_, 0.9);
  const double expected = MeanLoss(decoder, corpus.HeldOutWindows(/*batch=*/1, kLength));
  EXPECT_EQ(HeldOutLoss(decoder, corpus), expected);
  EXPECT_NE(MeanLoss(decoder, corpus.HeldOutWindows(/*batch=*/1, 2 * kLength)), expected);
  EXPECT_NEAR(PrintedLoss({.model = directory, .text = file_, .held_out = 0.9}), expected, 1e-4);
}

// 0.75 log(0.75 / 0.5) + 0.25 log(0.25 / 0.5), and 0 for certain tokens in both.
TEST(KlDivergenceTest, IsTheDefinition) {
  const at::Tensor p = at::tensor({0.75, 0.25}, at::kFloat).log() + 5;
  const at::Tensor q = at::zeros({2}, at::kFloat);
  EXPECT_NEAR(KlDivergence(p, q).item<double>(), 0.130812, 1e-6);
  EXPECT_NEAR(KlDivergence(q, p).item<double>(), 0.143841, 1e-6);
  EXPECT_EQ(KlDivergence(at::stack({p, q}), at::stack({p, q})).sum().item<double>(), 0);
}

}  // namespace
}  // namespace triptych::tools::evaluate_test
