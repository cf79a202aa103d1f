#include "engine/tools/corpus.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "engine/base/error.h"
#include "engine/tools/digest.h"
#include "tests/support/held_out.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tokenizer.h"

namespace triptych::tools::corpus_test {
namespace {

TEST(CorpusTest, WindowsCoverTheHeldOutPartOnce) {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i % 251);
  WriteFile(dir.path() / "text", text);
  const Corpus corpus = TestCorpus(dir.path() / "text", 0.25);
  EXPECT_EQ(corpus.train_tokens(), 750);
  EXPECT_EQ(corpus.held_out_tokens(), 250);
  int64_t next = 750;
  for (const Window& window : corpus.HeldOutWindows(/*batch=*/2, /*length=*/40)) {
    for (int64_t row = 0; row < window.targets.size(0); ++row) {
      EXPECT_EQ(window.inputs[row][0].item<int64_t>(), kBeginToken);
      for (int64_t i = 0; i < window.targets.size(1); ++i, ++next) {
        ASSERT_EQ(window.targets[row][i].item<int64_t>(), next % 251);
        if (i == 0) continue;
        ASSERT_EQ(window.inputs[row][i].item<int64_t>(), (next - 1) % 251);
      }
    }
  }
  EXPECT_EQ(next, 1000);
}

// All positions of the training part are drawn equally often, and none of the held-out part.
TEST(CorpusTest, DrawsFromTheWholeTrainingPartAndNothingElse) {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>(i);
  WriteFile(dir.path() / "text", text);
  const Corpus corpus = TestCorpus(dir.path() / "text", 0.5);
  std::mt19937_64 generator(1);
  std::map<int64_t, int> drawn;  // by the first token
  for (int i = 0; i < 100; ++i) {
    const Window window = corpus.Sample(/*batch=*/41, /*length=*/10, generator);
    ASSERT_EQ(window.inputs.sizes(), at::IntArrayRef({41, 10}));
    for (int64_t row = 0; row < 41; ++row) {
      const int64_t first = window.targets[row][0].item<int64_t>();
      ++drawn[first];
      EXPECT_EQ(window.inputs[row][0].item<int64_t>(), kBeginToken);
      EXPECT_TRUE(at::equal(window.targets[row], at::arange(first, first + 10)));
      EXPECT_TRUE(at::equal(window.inputs[row].narrow(0, 1, 9), at::arange(first, first + 9)));
    }
  }
  // 41 positions, 0 to 40, a hundred draws each, with a standard deviation of 10.
  EXPECT_EQ(drawn.size(), 41u);
  EXPECT_EQ(drawn.begin()->first, 0);
  EXPECT_EQ(drawn.rbegin()->first, 40);
  for (const auto& [first, count] : drawn) EXPECT_NEAR(count, 100, 60) << first;
}

class SeenTextTest : public testing::Test {
 protected:
  SeenTextTest() {
    WriteFile(file_, text_);
    config_.vocab_size = TestTokenizer()->vocab_size();
  }

  Corpus Open(std::optional<double> held_out) const {
    return Corpus(file_, *TestTokenizer(), held_out, config_, "MODEL");
  }
  std::string Refusal(double held_out) const {
    return RefusalOf<LoadError>([&] { Open(held_out); });
  }

  const TempDir dir_;
  const std::filesystem::path file_ = dir_.path() / "text";
  const std::string text_ = std::string(1000, 'x');
  ModelConfig config_;
};

TEST_F(SeenTextTest, IsNamedByWhatItHolds) {
  // From sha256sum(1) for "abc".
  EXPECT_EQ(Sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Open({}).identity().sha256, Sha256(text_));
  EXPECT_EQ(Sha256OfFile(file_), Sha256(text_));
  EXPECT_EQ(Open({}).bytes(), 1000);
  EXPECT_EQ(Open({}).file_name(), "text");
}

TEST_F(SeenTextTest, HoldsOutWhatTheModelHasNotSeen) {
  EXPECT_EQ(Open({}).held_out_tokens(), 100);
  config_.training_texts = {{std::string(64, '0'), 0.5}};  // another text
  EXPECT_EQ(Open({}).held_out_tokens(), 100);
  config_.training_texts.push_back({Sha256(text_), 0.25});
  EXPECT_EQ(Open({}).held_out_tokens(), 250);
  EXPECT_EQ(Open(0.2).held_out_tokens(), 200);
}

TEST_F(SeenTextTest, RefusesToHoldOutWhatTheModelHasSeen) {
  EXPECT_EQ(Refusal(0.5), "accepted");
  config_.training_texts = {{Sha256(text_), 0.25}};
  EXPECT_EQ(Refusal(0.25), "accepted");
  EXPECT_EQ(Refusal(0.3), "--held-out 0.3: MODEL was trained on some of that part of " +
                              file_.string() + "; allowed: 0 to 0.25");
  config_.training_texts = {{Sha256(text_), 0}};
  EXPECT_EQ(Refusal(0.01), "--held-out 0.01: MODEL was trained on all of " + file_.string() +
                               "; allowed: another text");
}

}  // namespace
}  // namespace triptych::tools::corpus_test
