#include "engine/tools/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/decoder/write_weights.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace triptych::tools::inspect_test {
namespace {

// A latent has 40 elements in each of two layers. In int8 it has two scales of two bytes.
TEST(InspectTest, SaysWhatAPositionTakesInEveryFormatOfTheCache) {
  const TempDir dir;
  ModelConfig config = SmallModel(AttentionKind::kMla);
  config.num_hidden_layers = 2;
  config.kv_lora_rank = {40, 40};
  SaveCheckpoint(dir.path() / "model", config, RandomWeights(config, 1));
  testing::internal::CaptureStdout();
  Inspect(dir.path() / "model", /*list_tensors=*/false);
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              testing::AllOf(testing::HasSubstr("  cache row, by layer  40, 40 elements\n"),
                             testing::HasSubstr("  cache per position   80 elements; bytes: 160 in "
                                                "bfloat16, 320 in float32, 88 in int8\n")));
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

}  // namespace
}  // namespace triptych::tools::inspect_test
