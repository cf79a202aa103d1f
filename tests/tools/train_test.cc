#include "engine/tools/train.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <thread>

#include "engine/kernels/threads.h"
#include "engine/model/checkpoint.h"
#include "engine/model/dropout.h"
#include "engine/text/tokenizer.h"
#include "engine/tools/corpus.h"
#include "engine/tools/evaluate.h"
#include "tests/client/process.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"

namespace triptych {
namespace {

std::string Rhyme() {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "the cat sat on the mat and the rat ran. ";
  return text;
}

class TrainTest : public testing::Test {
 protected:
  TrainTest() {
    SetComputeThreads(2);
    WriteFile(text_, Rhyme());
    ModelConfig config = SmallModel(AttentionKind::kGqa);
    config.max_position_embeddings = 32;
    WriteFile(config_, ToJson(config));
  }

  TrainOptions Options(const std::string& output) const {
    return {.config = config_,
            .from = {},
            .text = text_,
            .output = dir_.path() / output,
            .held_out = 0.1,
            .steps = 30,
            .batch_size = 4,
            .learning_rate = 1e-2,
            .warmup_steps = 3};
  }

  // To the last bit.
  bool SameWeights(const std::string& a, const std::string& b) const {
    return ReadFile(dir_.path() / a / "model.safetensors") ==
           ReadFile(dir_.path() / b / "model.safetensors");
  }

  TempDir dir_;
  const std::filesystem::path text_ = dir_.path() / "text.txt";
  const std::filesystem::path config_ = dir_.path() / "config.json";
};

TEST_F(TrainTest, LearnsAndLeavesACheckpointAndNothingElse) {
  const TrainOptions options = Options("out");
  Train(options);
  const Checkpoint checkpoint = LoadCheckpoint(options.output, DType::kFloat32);
  const Decoder decoder(checkpoint.config, checkpoint.weights, at::kFloat);
  // An untrained model's loss is log(258) = 5.55; the letters' frequencies alone give about 2.6.
  EXPECT_LT(HeldOutLoss(decoder, Corpus(text_, 0.1)), 2.6);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(options.output)) {
    files.push_back(entry.path().filename());
  }
  EXPECT_THAT(files, testing::UnorderedElementsAre("config.json", "model.safetensors"));
}

TEST_F(TrainTest, TheSameSeedGivesTheSameModel) {
  Train(Options("one"));
  Train(Options("two"));
  EXPECT_TRUE(SameWeights("one", "two"));
  TrainOptions other = Options("three");
  other.seed = 2;
  Train(other);
  EXPECT_FALSE(SameWeights("one", "three"));
}

TEST_F(TrainTest, GoesOnFromACheckpoint) {
  Train(Options("start"));
  TrainOptions more = Options("more");
  more.config.clear();
  more.from = dir_.path() / "start";
  more.learning_rate = 1e-9;
  more.steps = 1;
  Train(more);
  // One step at next to no learning rate: the model it started from, but for the last bits.
  const Checkpoint start = LoadCheckpoint(dir_.path() / "start", DType::kFloat32);
  const Checkpoint end = LoadCheckpoint(dir_.path() / "more", DType::kFloat32);
  for (const auto& [name, tensor] : start.weights) {
    EXPECT_LT(LargestDifference(end.weights.at(name), tensor), 1e-7) << name;
  }
}

// However far the killed run came, the one that continues it ends with the same bytes.
TEST_F(TrainTest, AKilledRunContinuesWithTheSameResult) {
  const auto command = [&](const std::string& output) {
    return std::vector<std::string>{TRIPTYCH_MODEL_PROGRAM,
                                    "--threads",
                                    "2",
                                    "train",
                                    "--config",
                                    config_,
                                    "--text",
                                    text_,
                                    "--output",
                                    dir_.path() / output,
                                    "--steps",
                                    "200",
                                    "--batch-size",
                                    "4",
                                    "--save-every",
                                    "1"};
  };
  EXPECT_EQ(client::Process(command("whole"), {}).Wait().exit_code, 0);
  client::Process killed(command("killed"), {});
  const auto state = dir_.path() / "killed/training_state.safetensors";
  const auto finished = dir_.path() / "killed/model.safetensors";
  while (!std::filesystem::exists(state) && !std::filesystem::exists(finished)) {
    std::this_thread::yield();
  }
  killed.Signal(SIGKILL);
  killed.Wait();
  const client::Process::Result continued = client::Process(command("killed"), {}).Wait();
  EXPECT_EQ(continued.exit_code, 0) << continued.err;
  EXPECT_THAT(continued.err, testing::HasSubstr("continuing at step"));
  EXPECT_TRUE(SameWeights("killed", "whole"));
}

TEST_F(TrainTest, RefusesToContinueAnotherRun) {
  TrainOptions options = Options("out");
  std::filesystem::create_directories(options.output);
  WriteFile(options.output / "training_state.safetensors", "not a state");
  EXPECT_THROW(Train(options), LoadError);
}

TEST_F(TrainTest, RefusesATextShorterThanAContext) {
  WriteFile(text_, "short");
  EXPECT_THROW(Train(Options("out")), std::runtime_error);
}

TEST(CorpusTest, WindowsCoverTheHeldOutPartOnce) {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i % 251);
  WriteFile(dir.path() / "text", text);
  const Corpus corpus(dir.path() / "text", 0.25);
  EXPECT_EQ(corpus.train_tokens(), 750);
  EXPECT_EQ(corpus.held_out_tokens(), 250);
  int64_t next = 750;
  for (const Window& window : corpus.HeldOutWindows(/*batch=*/2, /*length=*/40)) {
    for (int64_t row = 0; row < window.targets.size(0); ++row) {
      EXPECT_EQ(window.inputs[row][0].item<int64_t>(), ByteTokenizer::kBegin);
      for (int64_t i = 0; i < window.targets.size(1); ++i, ++next) {
        ASSERT_EQ(window.targets[row][i].item<int64_t>(), next % 251);
        if (i == 0) continue;
        ASSERT_EQ(window.inputs[row][i].item<int64_t>(), (next - 1) % 251);
      }
    }
  }
  EXPECT_EQ(next, 1000);
}

// Of a million draws the dropped share has a standard deviation of 0.0003.
TEST(DropoutTest, DropsTheShareAndKeepsTheMean) {
  const at::Tensor x = at::ones({1'000'001});
  Dropout dropout(0.1, 5);
  const at::Tensor first = dropout.Apply(x);
  EXPECT_NEAR((first == 0).to(at::kDouble).mean().item<double>(), 0.1, 0.002);
  EXPECT_NEAR(first.mean().item<double>(), 1.0, 0.002);
  EXPECT_FALSE(at::equal(first, dropout.Apply(x)));
  Dropout again(0.1, 5);
  EXPECT_TRUE(at::equal(first, again.Apply(x)));
}

}  // namespace
}  // namespace triptych
