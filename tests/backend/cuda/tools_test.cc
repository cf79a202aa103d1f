// Tests of the commands of triptych-model that name a GPU, on the emulated GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/kernels/context.h"
#include "engine/loading/loaded_model.h"
#include "engine/tools/inspect.h"
#include "engine/tools/research/verify.h"
#include "tests/support/temp_dir.h"

namespace triptych::tools::gpu_test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
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
  std::filesystem::copy(TRIPTYCH_MODELS_DIR "/shakespeare-gqa", directory.path(),
                        std::filesystem::copy_options::recursive);
  Json config = Json::parse(std::ifstream(directory.path() / "config.json"));
  config["sliding_window"] = 16;
  std::ofstream(directory.path() / "config.json") << config;
  EXPECT_THAT(InspectOn(directory.path(), "cuda:0"),
              HasSubstr("\n  on cuda:0            not served: sliding_window is shorter than the "
                        "context; the CUDA backend allows only a context up to the window"));
}

TEST(InspectOnGpu, RefusesADeviceThatIsNotThere) {
  EXPECT_THAT(
      [] { Inspect(kModel, /*list_tensors=*/false, "cuda:1"); },
      ThrowsMessage<std::invalid_argument>("cuda:1 is not available; allowed: cpu, cuda:0"));
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

TEST_F(VerifyOnGpuTest, RoundingDiffersBeyondATinyTolerance) {
  testing::internal::CaptureStdout();
  EXPECT_FALSE(VerifyDevice(
      {.model = kModel, .text = text_, .prompt = 20, .generated = 1, .tolerance = 1e-7}));
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              EndsWith("\ndifferent at a tolerance of 1e-07 nats\n"));
}

TEST_F(VerifyOnGpuTest, RefusesADeviceThatIsNotThereAndATextWithoutTokens) {
  EXPECT_THAT(
      [&] { VerifyDevice({.model = kModel, .text = text_, .device = "cuda:7"}); },
      ThrowsMessage<std::invalid_argument>("cuda:7 is not available; allowed: cpu, cuda:0"));
  std::ofstream(text_, std::ios::trunc).close();
  EXPECT_THAT([&] { VerifyDevice({.model = kModel, .text = text_}); },
              ThrowsMessage<std::runtime_error>(HasSubstr("allowed: 2 and more")));
}

}  // namespace
}  // namespace triptych::tools::gpu_test
