// Tests of Inspect, Plan and VerifyDevice, which commands of triptych-model call, on the emulated
// GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/decoder/write_weights.h"
#include "engine/kernels/context.h"
#include "engine/loading/loaded_model.h"
#include "engine/tools/inspect.h"
#include "engine/tools/plan/plan.h"
#include "engine/tools/research/verify.h"
#include "tests/backend/cuda/emulation/emulation.h"
#include "tests/backend/cuda/refused_model.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace triptych::tools::tools_test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

const std::filesystem::path kModel = TRIPTYCH_MODELS_DIR "/shakespeare-mla";

std::string InspectOn(const std::filesystem::path& model, const std::string& device) {
  testing::internal::CaptureStdout();
  Inspect(model, /*list_tensors=*/false, device);
  return testing::internal::GetCapturedStdout();
}

TEST(InspectOnGpu, SaysWhatALoadedModelTakes) {
  const LoadedModel model = LoadModel({.name = "mla",
                                       .checkpoint = checkpoint::OpenCheckpoint(kModel),
                                       .backend = {.kv_cache_bytes = 1 << 22},
                                       .engine = {.max_batch_tokens = kDefaultGpuBatchTokens},
                                       .device = "cuda"},
                                      std::make_shared<kernels::KernelContext>(1));
  const DeviceMemory& memory = model.info.device_memory.value();
  EXPECT_THAT(InspectOn(kModel, "cuda"),
              HasSubstr("\n  on cuda              weights " + std::to_string(memory.weight_bytes) +
                        " bytes, cache " + std::to_string(model.info.geometry.BytesPerPosition()) +
                        " per position, workspace " + std::to_string(memory.workspace_bytes) +
                        " for steps of 2048 tokens; "));
}

TEST(InspectOnGpu, SaysWhyAModelIsNotServed) {
  const TempDir directory;
  WriteRefusedModel(directory.path());
  EXPECT_THAT(InspectOn(directory.path(), "cuda:0"),
              HasSubstr(std::string("\n  on cuda:0            not served: ") + kRefusal));
}

TEST(InspectOnGpu, SaysThatAModelDoesNotFit) {
  const emulation::LimitsScope limits({.memory_bytes = kDeviceHeadRoom});
  EXPECT_THAT(
      InspectOn(kModel, "cuda"),
      HasSubstr("; 536870912 are free; not served: no block of the cache fits, as 536870912 "
                "stay unused\n"));
}

TEST(InspectOnGpu, SaysThatTheGpuFails) {
  const emulation::LostDeviceScope lost;
  EXPECT_THAT(InspectOn(kModel, "cuda"),
              HasSubstr("\n  on cuda              not served: cuda:0: CUDA: unspecified launch "
                        "failure\n"));
}

TEST(InspectOnGpu, RefusesADeviceThatIsNotThere) {
  EXPECT_THAT(
      [] { Inspect(kModel, /*list_tensors=*/false, "cuda:1"); },
      ThrowsMessage<std::invalid_argument>("cuda:1 is not available; allowed: cpu, cuda:0"));
}

std::string Planned(const PlanOptions& options) {
  testing::internal::CaptureStdout();
  Plan(options);
  return testing::internal::GetCapturedStdout();
}

TEST(PlanOnGpu, MemoryIsTheFreeMemoryOfTheGpu) {
  constexpr int64_t kBytes = int64_t{5} << 30;
  const emulation::LimitsScope limits({.memory_bytes = emulation::MemoryInUse() + kBytes});
  PlanOptions options{.model = kModel, .device = "cuda", .json = true};
  const std::string on_gpu = Planned(options);
  options.memory = kBytes;
  EXPECT_EQ(on_gpu, Planned(options));
  options.device = "cpu";
  EXPECT_EQ(on_gpu, Planned(options));
  options.memory = kBytes / 2;
  EXPECT_NE(on_gpu, Planned(options));
}

TEST(PlanOnGpu, RefusesInOneLineWhatTheGpuDoesNotServe) {
  const TempDir directory;
  WriteRefusedModel(directory.path());
  EXPECT_THAT([&] { Plan({.model = directory.path(), .device = "cuda:0"}); },
              ThrowsMessage<LoadError>(StartsWith(kRefusal)));
  EXPECT_THAT([] { Plan({.model = kModel, .device = "cuda:1"}); },
              ThrowsMessage<std::invalid_argument>(
                  "--device: cuda:1 is not available; allowed: cpu, cuda:0"));
  const emulation::LostDeviceScope lost;
  EXPECT_THAT([] { Plan({.model = kModel, .device = "cuda"}); },
              ThrowsMessage<LoadError>("cuda:0: CUDA: unspecified launch failure"));
}

class VerifyOnGpuTest : public testing::Test {
 protected:
  VerifyOnGpuTest() {
    std::ofstream(text_) << "ROMEO:\nBut soft, what light through yonder window breaks?\n";
  }

  const TempDir directory_;
  const std::filesystem::path text_ = directory_.path() / "play.txt";
};

TEST_F(VerifyOnGpuTest, AModelEqualsItselfOnTheCpu) {
  testing::internal::CaptureStdout();
  EXPECT_TRUE(VerifyDevice({.model = kModel, .text = text_, .prompt = 20, .generated = 16}));
  const std::string output = testing::internal::GetCapturedStdout();
  EXPECT_THAT(output, HasSubstr("device           cuda:0, Emulated GPU\n"));
  EXPECT_THAT(output, HasSubstr("prompt           20 tokens of play.txt\n"));
  EXPECT_THAT(output, HasSubstr(" of 16 tokens"));
  EXPECT_THAT(output, EndsWith("\nequal at a tolerance of 0.1 nats\n"));
}

TEST_F(VerifyOnGpuTest, AModelWithExpertsEqualsItselfOnTheCpu) {
  ModelConfig config = SmallExpertsModel(AttentionKind::kMla);
  config.experts.shared_expert_gate = true;
  config.experts.sparse_layers = {0, 1};
  SaveCheckpoint(directory_.path() / "model", config, RandomWeights(config, 1));
  testing::internal::CaptureStdout();
  EXPECT_TRUE(VerifyDevice(
      {.model = directory_.path() / "model", .text = text_, .prompt = 20, .generated = 16}));
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              EndsWith("\nequal at a tolerance of 0.1 nats\n"));
}

TEST_F(VerifyOnGpuTest, RoundingDiffersBeyondATinyTolerance) {
  testing::internal::CaptureStdout();
  EXPECT_FALSE(VerifyDevice(
      {.model = kModel, .text = text_, .prompt = 20, .generated = 1, .tolerance = 1e-7}));
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              EndsWith("\ndifferent at a tolerance of 1e-07 nats\n"));
}

// The CPU computes at most 512 tokens in a step, the GPU 2048.
TEST_F(VerifyOnGpuTest, ComparesEveryTokenOfAPromptThatTakesSeveralSteps) {
  ModelConfig config = SmallModel(AttentionKind::kGqa);
  config.max_position_embeddings = 4096;
  config.num_hidden_layers = 1;
  SaveCheckpoint(directory_.path() / "model", config, RandomWeights(config, 1));
  std::ofstream(text_) << std::string(2100, 'a');
  testing::internal::CaptureStdout();
  EXPECT_TRUE(VerifyDevice(
      {.model = directory_.path() / "model", .text = text_, .prompt = 2100, .generated = 1}));
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("prompt           2100 tokens of"));
}

TEST_F(VerifyOnGpuTest, RefusesTokensThatTheModelLacks) {
  std::filesystem::copy(kModel, directory_.path() / "model",
                        std::filesystem::copy_options::recursive);
  const std::filesystem::path file = directory_.path() / "model" / "config.json";
  Json config = Json::parse(std::ifstream(file));
  config["vocab_size"] = 'y';
  std::ofstream(file) << config;
  EXPECT_THAT([&] { VerifyDevice({.model = directory_.path() / "model", .text = text_}); },
              ThrowsMessage<LoadError>(HasSubstr("play.txt: holds token 121 of the tokenizer; "
                                                 "allowed: tokens below vocab_size = 121 of ")));
}

TEST_F(VerifyOnGpuTest, RefusesTheCpuAndAContextWithoutRoom) {
  EXPECT_THAT([&] { VerifyDevice({.model = kModel, .text = text_, .device = "cpu"}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("allowed: cuda, cuda:N")));
  EXPECT_THAT([&] { VerifyDevice({.model = kModel, .text = text_, .generated = 511}); },
              ThrowsMessage<std::invalid_argument>(
                  "prompt: room for 1 tokens, before 511 generated ones in a context of 512; "
                  "allowed: 2 and more"));
}

TEST_F(VerifyOnGpuTest, RefusesADeviceThatIsNotThereAndATextWithoutTokens) {
  EXPECT_THAT(
      [&] { VerifyDevice({.model = kModel, .text = text_, .device = "cuda:7"}); },
      ThrowsMessage<std::invalid_argument>("cuda:7 is not available; allowed: cpu, cuda:0"));
  std::ofstream(text_, std::ios::trunc).close();
  EXPECT_THAT([&] { VerifyDevice({.model = kModel, .text = text_}); },
              ThrowsMessage<std::runtime_error>(
                  HasSubstr("play.txt: a prompt of 1 tokens; allowed: 2 and more")));
}

}  // namespace
}  // namespace triptych::tools::tools_test
