#include "engine/tools/evaluate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/tools/digest.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tokenizer.h"

namespace triptych {
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
  EXPECT_THAT(Printed(config),
              HasSubstr(" over the last 100 tokens of play.txt, of which it does not say whether "
                        "it was trained on them, computed in float32"));
  config.training_texts = {{std::string(64, '0'), 0.5}};
  EXPECT_THAT(
      Printed(config),
      HasSubstr(" over the last 100 tokens of play.txt, which is none of the texts that it says it "
                "was trained on, "));
  config.training_texts.push_back({Sha256(text_), 0.25});
  EXPECT_THAT(Printed(config), HasSubstr(" over 250 held-out tokens, "));
}

// 0.75 log(0.75 / 0.5) + 0.25 log(0.25 / 0.5), and what is sure in both.
TEST(KlDivergenceTest, IsTheDefinition) {
  const at::Tensor p = at::tensor({0.75, 0.25}, at::kFloat).log() + 5;
  const at::Tensor q = at::zeros({2}, at::kFloat);
  EXPECT_NEAR(KlDivergence(p, q).item<double>(), 0.130812, 1e-6);
  EXPECT_NEAR(KlDivergence(q, p).item<double>(), 0.143841, 1e-6);
  EXPECT_EQ(KlDivergence(at::stack({p, q}), at::stack({p, q})).sum().item<double>(), 0);
}

}  // namespace
}  // namespace triptych
