#include "engine/tools/research/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "engine/base/file.h"
#include "engine/decoder/convert_weights.h"
#include "engine/decoder/weights.h"
#include "engine/decoder/write_weights.h"
#include "engine/tools/digest.h"
#include "tests/support/process.h"
#include "tests/support/random_model.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace triptych::tools::verify_test {
namespace {

using testing::HasSubstr;

// Standard output of a function.
template <typename Function>
std::string Printed(Function function) {
  testing::internal::CaptureStdout();
  try {
    function();
  } catch (...) {  // later tests capture output too
    testing::internal::GetCapturedStdout();
    throw;
  }
  return testing::internal::GetCapturedStdout();
}

TEST(VerifyReduction, HoldsAtOddSizesAndForUnlikeSequences) {
  VerifyReductionOptions options{.x_width = 24,
                                 .y_width = 17,
                                 .heads = 3,
                                 .head_dim = 5,
                                 .rank = 4,
                                 .batch = 2,
                                 .queries = 7,
                                 .keys = 11};
  const std::string printed = Printed([&] { EXPECT_TRUE(VerifyReduction(options)); });
  for (const char* part : {"D2 = 17", "float64", "float32", "factored", "premultiplied",
                           // 22 positions: 2 * 3 * 5 elements of 4 bytes, and 4
                           "keys and values 2640 bytes, latents 352 bytes"}) {
    EXPECT_THAT(printed, HasSubstr(part));
  }
  options.dtype = at::kDouble;
  EXPECT_THAT(Printed([&] { EXPECT_TRUE(VerifyReduction(options)); }),
              testing::Not(HasSubstr("float32  ")));
}

TEST(VerifyReduction, RefusesADeviceThatIsNotThere) {
  if (at::hasCUDA()) GTEST_SKIP() << "CUDA is here";
  EXPECT_THAT(RefusalOf<std::runtime_error>([] { VerifyReduction({.device = at::kCUDA}); }),
              HasSubstr("--device cuda"));
}

// LibTorch's errors have pages of backtrace, which must not be printed.
TEST(VerifyReduction, SaysInOneLineThatTheMemoryIsTooSmall) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer has its own words for it";
#endif
  const Process::Result result = Process({TRIPTYCH_MODEL_PROGRAM, "verify", "reduction", "--heads",
                                          "1048576", "--head-dim", "1048576"},
                                         {})
                                     .Wait();
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, testing::StartsWith("triptych-model: "));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

TEST(VerifyGqaToMla, HoldsForRandomMatricesOfAnyShape) {
  EXPECT_THAT(Printed([] { EXPECT_TRUE(VerifyGqaToMla({})); }),
              testing::AllOf(HasSubstr("4 x 24, rank 4"), HasSubstr("16 x 24, rank 4"),
                             HasSubstr("2.000000000")));
  Printed([] {
    EXPECT_TRUE(VerifyGqaToMla({.rows = 9, .columns = 5, .copies = 3}));  // rank 5
    EXPECT_TRUE(VerifyGqaToMla({.rows = 1, .columns = 1, .copies = 1}));
  });
}

TEST(VerifyNormedKeys, HoldsForHeadsOfEveryGrouping) {
  for (const int64_t groups : {1, 2, 6}) {
    EXPECT_THAT(Printed([&] {
                  EXPECT_TRUE(VerifyNormedKeys(
                      {.width = 50, .heads = 6, .groups = groups, .head_dim = 8, .length = 20}));
                }),
                HasSubstr("normed keys as latents with inverse norms: holds"));
  }
  EXPECT_THAT(RefusalOf<std::runtime_error>([] { VerifyNormedKeys({.heads = 5, .groups = 2}); }),
              HasSubstr("--groups must divide --heads"));
}

class VerifyModelsTest : public testing::Test {
 protected:
  VerifyModelsTest() {
    gqa_.config = SmallModel(AttentionKind::kGqa);
    gqa_.config.position_embedding = PositionEmbedding::kLearned;
    gqa_.config.torch_dtype = TensorFormat::kFloat32;
    gqa_.weights = RandomWeights(gqa_.config, 3);
    Save("gqa", gqa_);
    std::string text;
    for (int i = 0; i < 100; ++i) text += "all the world's a stage, ";
    WriteFile(text_, text);
  }

  std::filesystem::path Save(const std::string& name, const Checkpoint& checkpoint) {
    SaveCheckpoint(dir_.path() / name, checkpoint.config, checkpoint.weights);
    return dir_.path() / name;
  }
  VerifyModelOptions Against(const std::filesystem::path& b, double tolerance = 1e-4) const {
    return {
        .a = dir_.path() / "gqa", .b = b, .text = text_, .held_out = 0.5, .tolerance = tolerance};
  }

  TempDir dir_;
  Checkpoint gqa_;
  const std::filesystem::path text_ = dir_.path() / "text.txt";
};

TEST_F(VerifyModelsTest, ARealLayerHasTheRatioOfItsGroups) {
  const double ratio = std::sqrt(static_cast<double>(gqa_.config.num_attention_heads) /
                                 static_cast<double>(gqa_.config.num_key_value_heads));
  char text[32];
  std::snprintf(text, sizeof(text), "%.9f", ratio);
  for (const bool values : {false, true}) {
    EXPECT_THAT(
        Printed([&] {
          EXPECT_TRUE(VerifyGqaToMla({.model = dir_.path() / "gqa", .layer = 1, .values = values}));
        }),
        HasSubstr(text));
  }
  EXPECT_THAT(RefusalOf<std::runtime_error>(
                  [&] { VerifyGqaToMla({.model = dir_.path() / "gqa", .layer = 99}); }),
              HasSubstr("--layer 99 is out of range; allowed: 0 to"));
}

// The logits of random models are of order 1; rounding the factors to float32 moves them by 1e-6.
TEST_F(VerifyModelsTest, AnExactConversionIsEqualAndATruncatedOneIsNot) {
  const auto exact = Save("exact", Convert(gqa_, {.attention = AttentionKind::kMla}, "gqa"));
  const auto cut = Save("cut", Convert(gqa_, {.attention = AttentionKind::kMla, .rank = 2}, "gqa"));
  Printed([&] {
    EXPECT_TRUE(VerifyModel(Against(dir_.path() / "gqa", /*tolerance=*/0)));
    EXPECT_TRUE(VerifyModel(Against(exact)));
    EXPECT_FALSE(VerifyModel(Against(cut)));
    EXPECT_TRUE(VerifyModel(Against(cut, /*tolerance=*/1e6)));
  });
  const std::string printed = Printed([&] { VerifyModel(Against(dir_.path() / "gqa")); });
  EXPECT_THAT(printed, HasSubstr("tokens compared   1250 held out"));
  EXPECT_THAT(printed, HasSubstr("largest 0, mean 0"));
  EXPECT_THAT(printed, HasSubstr("100.000%"));
}

// The compared part is held out for both models, by their records.
TEST_F(VerifyModelsTest, ComparesOnWhatNeitherWasTrainedOn) {
  Checkpoint trained = gqa_;
  trained.config.training_texts = {{Sha256(ReadFile(text_)), 0.25}};
  VerifyModelOptions options = Against(Save("trained", trained));
  EXPECT_THAT(RefusalOf<std::runtime_error>([&] { VerifyModel(options); }),
              HasSubstr("trained was trained on some of that part of"));
  std::swap(options.a, options.b);
  EXPECT_THAT(RefusalOf<std::runtime_error>([&] { VerifyModel(options); }),
              HasSubstr("trained was trained on some of that part of"));
  options.held_out = {};
  EXPECT_THAT(Printed([&] { EXPECT_TRUE(VerifyModel(options)); }),
              HasSubstr("tokens compared   625 held out"));
}

// Models that cannot be compared are refused first.
TEST_F(VerifyModelsTest, RefusesAModelThatIsNotFinite) {
  Checkpoint broken = gqa_;
  broken.weights["model.embed_tokens.weight"] =
      broken.weights.at("model.embed_tokens.weight").clone();
  broken.weights.at("model.embed_tokens.weight")['q'].fill_(std::nan(""));
  EXPECT_THAT(RefusalOf<std::runtime_error>(
                  [&] { VerifyModel(Against(Save("nan", broken), /*tolerance=*/1e6)); }),
              HasSubstr("tensor model.embed_tokens.weight holds numbers that are not finite"));
}

TEST_F(VerifyModelsTest, RefusesModelsOfUnlikeVocabularies) {
  Checkpoint other = gqa_;
  other.config.vocab_size += 1;
  other.weights = RandomWeights(other.config, 3);
  EXPECT_THAT(RefusalOf<std::runtime_error>([&] { VerifyModel(Against(Save("other", other))); }),
              HasSubstr("vocab_size is"));
}

TEST(VerifyNotGqa, HoldsAndSaysTheCounterExample) {
  EXPECT_THAT(Printed([] { EXPECT_TRUE(VerifyNotGqa({})); }),
              testing::AllOf(HasSubstr("[3 6; 4 8]"), HasSubstr("1000 random products")));
  Printed([] {
    // r > d is reduced to d for the second half.
    EXPECT_TRUE(
        VerifyNotGqa({.count = 5, .width = 7, .heads = 6, .groups = 3, .head_dim = 3, .rank = 5}));
  });
  EXPECT_THAT(RefusalOf<std::runtime_error>([] { VerifyNotGqa({.heads = 4, .groups = 3}); }),
              HasSubstr("--groups 3"));
  EXPECT_THAT(RefusalOf<std::runtime_error>([] { VerifyNotGqa({.heads = 4, .groups = 4}); }),
              HasSubstr("--groups 4"));
}

}  // namespace
}  // namespace triptych::tools::verify_test
