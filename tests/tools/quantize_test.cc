#include "engine/tools/quantize.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "engine/base/file.h"
#include "engine/checkpoint/config/config_file.h"
#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/write_weights.h"
#include "engine/tools/evaluate.h"
#include "engine/tools/input_moments.h"
#include "tests/support/held_out.h"
#include "tests/support/process.h"
#include "tests/support/random_model.h"
#include "tests/support/refusal.h"
#include "tests/support/small_gguf.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"

namespace triptych::tools::quantize_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Squared error of products by rounding, over inputs of these moments.
double Lost(const at::Tensor& weight, const at::Tensor& rounded, const at::Tensor& moments) {
  const at::Tensor change = rounded.to(at::kDouble) - weight.to(at::kDouble);
  return (at::mm(change, moments) * change).sum().item<double>();
}

// Moments of correlated inputs: sums of a few variables.
at::Tensor DependentMoments(int64_t inputs, uint64_t seed) {
  Normal normal(seed);
  const at::Tensor factors = normal.Weight(inputs, inputs / 4);
  return at::mm(factors, factors.t()) + 0.01 * at::eye(inputs, at::kDouble);
}

TEST(RoundCalibratedTest, LosesLessOfProducts) {
  for (const int64_t inputs : {24, 64, 100}) {
    const at::Tensor weight = Normal(1).Weight(40, inputs);
    const at::Tensor moments = DependentMoments(inputs, 2);
    const at::Tensor calibrated = RoundCalibrated(weight, moments);
    EXPECT_EQ(calibrated.sizes(), weight.sizes());
    EXPECT_LT(Lost(weight, calibrated, moments),
              0.6 * Lost(weight, RoundToNearest(weight, WeightFormat::kInt4), moments))
        << inputs;
  }
}

// Compensation gains nothing if inputs are uncorrelated.
TEST(RoundCalibratedTest, IsToTheNearestUnderIndependentInputs) {
  const at::Tensor weight = Normal(3).Weight(40, 70);
  EXPECT_TRUE(at::equal(RoundCalibrated(weight, at::eye(70, at::kDouble)),
                        RoundToNearest(weight, WeightFormat::kInt4)));
}

// Packing and storing do not change rounded weights.
TEST(RoundCalibratedTest, IsIntegersAlready) {
  const at::Tensor rounded = RoundCalibrated(Normal(4).Weight(64, 100), DependentMoments(100, 5));
  EXPECT_TRUE(at::equal(RoundToNearest(rounded, WeightFormat::kInt4), rounded));
}

TEST(RoundCalibratedTest, InputsThatAreNeverThereMayBeAny) {
  const at::Tensor moments = at::zeros({40, 40}, at::kDouble);
  const at::Tensor weight = Normal(6).Weight(8, 40);
  EXPECT_TRUE(RoundCalibrated(weight, moments).isfinite().all().item<bool>());
}

class QuantizeTest : public testing::Test {
 protected:
  QuantizeTest() {
    std::mt19937_64 generator(1);
    std::string text;
    for (int i = 0; i < 9000; ++i) text += static_cast<char>('a' + generator() % 9);
    WriteFile(text_, text);
  }

  QuantizeOptions Options(AttentionKind kind, WeightFormat format) const {
    const std::filesystem::path from = dir_.path() / Name(kind);
    const ModelConfig config = SmallModel(kind);
    SaveCheckpoint(from, config, RandomWeights(config, 1));
    QuantizeOptions options;
    options.from = from;
    options.to = dir_.path() / "out";
    options.format = format;
    return options;
  }
  static std::string Refusal(const QuantizeOptions& options) {
    return RefusalOf<std::exception>([&] { QuantizeModel(options); });
  }

  const TempDir dir_;
  const std::filesystem::path text_ = dir_.path() / "text.txt";
};

TEST_F(QuantizeTest, StoresIntegersOfEveryKind) {
  for (const AttentionKind kind : {AttentionKind::kMha, AttentionKind::kGqa, AttentionKind::kMla}) {
    for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
      SCOPED_TRACE(std::string(Name(kind)) + std::string(Name(format)));
      const QuantizeOptions options = Options(kind, format);
      std::filesystem::remove_all(options.to);
      QuantizeModel(options);
      const ModelConfig stored = checkpoint::ReadModelConfig(options.to / "config.json");
      ASSERT_TRUE(stored.quantization.has_value());
      EXPECT_EQ(stored.quantization->format, format);
      const Weights before = LoadCheckpoint(options.from, TensorFormat::kFloat32).weights;
      const Weights after = LoadCheckpoint(options.to, TensorFormat::kFloat32).weights;
      for (const std::string& name : IntegerTensors(stored)) {
        EXPECT_TRUE(at::equal(after.at(name), RoundToNearest(before.at(name), format))) << name;
      }
      EXPECT_LT(std::filesystem::file_size(options.to / "model.safetensors"),
                std::filesystem::file_size(options.from / "model.safetensors") / 2);
    }
  }
}

// Moments of all layers at once, and of a layer at a time: also under a tied output matrix, whose
// rounding changes what all layers read.
TEST_F(QuantizeTest, LayersOneAtATimeAreRoundedTheSame) {
  ModelConfig tied = SmallModel(AttentionKind::kGqa);
  tied.tie_word_embeddings = true;
  for (const ModelConfig& config : {SmallExpertsModel(AttentionKind::kMla), tied}) {
    const Weights weights = Cast(RandomWeights(config, 2), at::kFloat);
    ModelConfig stored = config;
    stored.quantization = {.format = WeightFormat::kInt4, .embeddings = true};
    const std::set<std::string> names = IntegerTensors(stored);
    const Corpus corpus = TestCorpus(text_, kDefaultHeldOut);
    const auto moments = InputMoments({.config = config, .weights = weights}, names, corpus);
    for (const int64_t moment_bytes : {int64_t{1}, int64_t{1} << 40}) {
      Checkpoint model{.config = config, .weights = weights};
      const std::set<std::string> without = RoundByInputs(model, names, corpus, moment_bytes);
      for (const std::string& name : names) {
        const auto found = moments.find(name);
        EXPECT_EQ(without.contains(name), found == moments.end()) << name;
        EXPECT_TRUE(at::equal(model.weights.at(name),
                              found == moments.end()
                                  ? RoundToNearest(weights.at(name), WeightFormat::kInt4)
                                  : RoundCalibrated(weights.at(name), found->second)))
            << name;
      }
    }
  }
}

// Every matrix is rounded for its own inputs.
TEST_F(QuantizeTest, CalibratesByTheInputsOfEachProduct) {
  for (const AttentionKind kind : {AttentionKind::kMha, AttentionKind::kGqa, AttentionKind::kMla}) {
    SCOPED_TRACE(Name(kind));
    QuantizeOptions options = Options(kind, WeightFormat::kInt4);
    std::filesystem::remove_all(options.to);
    options.calibrate = text_;
    QuantizeModel(options);
    const ModelConfig stored = checkpoint::ReadModelConfig(options.to / "config.json");
    const Checkpoint before = LoadCheckpoint(options.from, TensorFormat::kFloat32);
    const Weights after = LoadCheckpoint(options.to, TensorFormat::kFloat32).weights;
    const Corpus corpus = TestCorpus(text_, kDefaultHeldOut);
    const auto moments = InputMoments(before, IntegerTensors(stored), corpus);
    for (const std::string& name : IntegerTensors(stored)) {
      if (name == kEmbeddingName) continue;  // is looked up
      ASSERT_TRUE(moments.contains(name)) << name;
      EXPECT_TRUE(
          at::equal(after.at(name), RoundCalibrated(before.weights.at(name), moments.at(name))))
          << name;
    }
    EXPECT_FALSE(moments.contains(kEmbeddingName));
    EXPECT_THAT(ReadText(options.to / "README.md", 1 << 16),
                AllOf(HasSubstr("rounded by what they multiply"), HasSubstr("held-out loss")));
  }
}

// Experts are rounded by the inputs that they see; the router of each layer sends every token to
// the same two experts.
TEST_F(QuantizeTest, NamesTheExpertsThatTheTextDoesNotReach) {
  QuantizeOptions options = Options(AttentionKind::kGqa, WeightFormat::kInt4);
  options.calibrate = text_;
  ModelConfig config = SmallModel(AttentionKind::kGqa);
  config.experts = {.n_routed_experts = 8,
                    .num_experts_per_tok = 2,
                    .moe_intermediate_size = 33,
                    .topk_method = TopkMethod::kNoauxTc};
  Weights weights = RandomWeights(config, 1);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    at::Tensor bias = weights.at(RouterBiasName(layer));
    bias.zero_();
    bias.narrow(0, 5, 2).fill_(100);
  }
  SaveCheckpoint(options.from, config, weights);
  testing::internal::CaptureStderr();
  QuantizeModel(options);
  const std::string unseen =
      "12 experts saw no token of the text and are rounded to the nearest: "
      "model.layers.0.mlp.experts.0, model.layers.0.mlp.experts.1, model.layers.0.mlp.experts.2, "
      "model.layers.0.mlp.experts.3 and 8 more";
  EXPECT_EQ(testing::internal::GetCapturedStderr(), unseen + "\n");
  EXPECT_THAT(ReadText(options.to / "README.md", 1 << 16), HasSubstr(unseen + ".\n"));

  const ModelConfig stored = checkpoint::ReadModelConfig(options.to / "config.json");
  const Checkpoint before = LoadCheckpoint(options.from, TensorFormat::kFloat32);
  const Weights after = LoadCheckpoint(options.to, TensorFormat::kFloat32).weights;
  const auto moments =
      InputMoments(before, IntegerTensors(stored), TestCorpus(text_, kDefaultHeldOut));
  for (int64_t expert = 0; expert < 8; ++expert) {
    for (const char* matrix : {"gate_proj", "up_proj", "down_proj"}) {
      const std::string name = ExpertPrefix(1, expert) + matrix + ".weight";
      SCOPED_TRACE(name);
      const at::Tensor& weight = before.weights.at(name);
      const bool reached = expert == 5 || expert == 6;
      ASSERT_EQ(moments.contains(name), reached);
      EXPECT_TRUE(at::equal(after.at(name), reached ? RoundCalibrated(weight, moments.at(name))
                                                    : RoundToNearest(weight, WeightFormat::kInt4)));
    }
  }
  EXPECT_TRUE(at::equal(after.at(RouterName(1)), before.weights.at(RouterName(1))));
}

TEST_F(QuantizeTest, KeepsEmbeddings) {
  QuantizeOptions options = Options(AttentionKind::kMha, WeightFormat::kInt4);
  options.keep_embeddings = true;
  QuantizeModel(options);
  const Weights before = LoadCheckpoint(options.from, TensorFormat::kFloat32).weights;
  const Weights after = LoadCheckpoint(options.to, TensorFormat::kFloat32).weights;
  EXPECT_TRUE(at::equal(after.at(kEmbeddingName), before.at(kEmbeddingName)));
  EXPECT_TRUE(at::equal(after.at(kOutputName), before.at(kOutputName)));
}

// The tokenizer is written too.
TEST_F(QuantizeTest, AGgufFileIsASourceAsOthersAre) {
  QuantizeOptions options;
  options.from = dir_.path() / "m.gguf";
  options.to = dir_.path() / "out";
  options.format = WeightFormat::kInt4;
  options.calibrate = text_;
  WriteFile(options.from, SmallGguf());
  QuantizeModel(options);
  const Checkpoint after = LoadCheckpoint(options.to, TensorFormat::kFloat32);
  const Weights before = LoadCheckpoint(options.from, TensorFormat::kFloat32).weights;
  const ModelConfig stored = checkpoint::ReadModelConfig(options.to / "config.json");
  for (const auto& [name, tensor] : before) {
    EXPECT_EQ(at::equal(after.weights.at(name), tensor), !IntegerTensors(stored).contains(name))
        << name;
  }
  const std::string text = ReadText(text_, 1 << 16);
  EXPECT_EQ(checkpoint::LoadTokenizer(options.to)->Encode(text),
            checkpoint::LoadTokenizer(options.from)->Encode(text));
  EXPECT_EQ(ReadText(options.to / "chat_template.jinja", 100), "{{ messages }}");

  options.to = dir_.path() / "other";
  WriteFile(options.from, UnwritableGguf());
  EXPECT_THAT(Refusal(options), HasSubstr("tokenizer.chat_template is 1048577 bytes"));
}

TEST_F(QuantizeTest, RefusesInOneLine) {
  QuantizeOptions options = Options(AttentionKind::kMha, WeightFormat::kInt8);
  options.calibrate = text_;
  EXPECT_THAT(Refusal(options), HasSubstr("--calibrate goes with --dtype int4"));
  options.calibrate.clear();
  options.to = options.from;
  EXPECT_THAT(Refusal(options), HasSubstr("exists and is not an empty directory"));
  options.from = dir_.path() / "none";
  options.to = dir_.path() / "out";
  EXPECT_THAT(Refusal(options), AllOf(HasSubstr("none"), Not(HasSubstr("\n"))));
}

}  // namespace
}  // namespace triptych::tools::quantize_test
