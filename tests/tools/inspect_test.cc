#include "engine/tools/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "engine/checkpoint/open_checkpoint.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/write_weights.h"
#include "engine/kernels/context.h"
#include "engine/loading/loaded_model.h"
#include "tests/support/process.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace triptych::tools::inspect_test {
namespace {

// A latent has 40 elements in each of two layers. In int8 and int4 it has two scales of two bytes.
TEST(InspectTest, SaysWhatAPositionTakesInEveryFormatOfTheCache) {
  const TempDir dir;
  ModelConfig config = SmallModel(AttentionKind::kMla);
  config.num_hidden_layers = 2;
  config.kv_lora_rank = {40, 40};
  SaveCheckpoint(dir.path() / "model", config, RandomWeights(config, 1));
  testing::internal::CaptureStdout();
  Inspect(dir.path() / "model", /*list_tensors=*/false);
  EXPECT_THAT(
      testing::internal::GetCapturedStdout(),
      testing::AllOf(testing::HasSubstr("  cache row, by layer  40, 40 elements\n"),
                     testing::HasSubstr("  cache per position   80 elements; bytes: 160 in "
                                        "bfloat16, 320 in float32, 48 in int4, 88 in int8\n")));
}

TEST(InspectTest, SaysWhatAServerTakesOnTheCpu) {
  const TempDir dir;
  SaveCheckpoint(dir.path() / "model", SmallModel(AttentionKind::kMla),
                 RandomWeights(SmallModel(AttentionKind::kMla), 1));
  const LoadOptions options{.name = {},
                            .checkpoint = checkpoint::OpenCheckpoint(dir.path() / "model"),
                            .backend = {.kv_cache_bytes = 1 << 20}};
  const LoadedBytes bytes = CountLoadedBytes(options);
  const LoadedModel model = LoadModel(options, std::make_shared<kernels::KernelContext>(1));
  testing::internal::CaptureStdout();
  Inspect(dir.path() / "model", /*list_tensors=*/false, "cpu");
  EXPECT_THAT(
      testing::internal::GetCapturedStdout(),
      testing::HasSubstr("\n  on cpu               weights " + std::to_string(bytes.weights) +
                         " bytes, cache " + std::to_string(model.info.geometry.BytesPerPosition()) +
                         " per position, loading about " + std::to_string(bytes.loading) + "\n"));
}

TEST(InspectTest, TheCommandTakesADevice) {
  const auto inspect_on = [](const std::string& device) {
    return Process({TRIPTYCH_MODEL_PROGRAM, "inspect", TRIPTYCH_MODELS_DIR "/shakespeare-mla",
                    "--device", device},
                   {})
        .Wait();
  };
  const Process::Result cpu = inspect_on("cpu");
  EXPECT_EQ(cpu.exit_code, 0);
  EXPECT_THAT(cpu.out, testing::HasSubstr("\n  on cpu               weights "));
  const Process::Result none = inspect_on("cuda:99");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_EQ(none.out, "");
  EXPECT_THAT(none.err, testing::StartsWith("triptych-model: cuda:99 is not available"));
}

TEST(InspectTest, SaysWhichLayersHaveAWindow) {
  const TempDir dir;
  ModelConfig config = SmallModel(AttentionKind::kMha);
  config.num_hidden_layers = 3;
  config.sliding_window = 9;
  config.layer_types = {LayerType::kSliding, LayerType::kFull, LayerType::kSliding};
  SaveCheckpoint(dir.path() / "model", config, RandomWeights(config, 1));
  testing::internal::CaptureStdout();
  Inspect(dir.path() / "model", /*list_tensors=*/false);
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              testing::HasSubstr("  sliding window       9 positions, in 2 of 3 layers\n"));
}

TEST(InspectTest, SaysWhatATokenUsesOfAModelWithExperts) {
  const TempDir dir;
  ModelConfig config;
  for (const NamedConfig& named : EveryOption()) {
    if (named.name == "GqaExperts") config = named.config;
  }
  SaveCheckpoint(dir.path() / "model", config, RandomWeights(config, 1));
  testing::internal::CaptureStdout();
  Inspect(dir.path() / "model", /*list_tensors=*/true);
  EXPECT_THAT(
      testing::internal::GetCapturedStdout(),
      testing::AllOf(
          testing::HasSubstr("  active parameters    " +
                             std::to_string(ActiveParameterCount(config)) + " for a token\n"),
          testing::HasSubstr(
              "  experts              2 of 6 for each token, each an MLP of 11; in layers 0, 2; by "
              "sigmoid, noaux_tc, of 2 of 3 groups; shared: an MLP of 13 with a gate\n"),
          testing::ContainsRegex("  weights per token    [0-9]+ bytes read by a step of one token"),
          testing::ContainsRegex("  model.layers.2.mlp.experts.5.up_proj.weight +.11, 24.\n")));
}

}  // namespace
}  // namespace triptych::tools::inspect_test
