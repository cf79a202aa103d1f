#include "engine/loading/loaded_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "tests/support/refusal.h"

namespace triptych::loaded_model_test {
namespace {

// A model of 2^20 positions, whose heads are 128 wide; a position of its cache takes 2048 bytes.
LoadOptions Million() {
  LoadOptions options;
  options.checkpoint.path = "m";
  options.checkpoint.context_origin = "max_position_embeddings";
  options.cache_format = CacheFormat::kFloat32;
  ModelConfig& config = options.checkpoint.config;
  config.vocab_size = 16;
  config.hidden_size = 128;
  config.intermediate_size = 16;
  config.num_hidden_layers = 2;
  config.num_attention_heads = config.num_key_value_heads = 1;
  config.head_dim = 128;
  config.position_embedding = PositionEmbedding::kRope;
  config.max_position_embeddings = 1 << 20;
  return options;
}

TEST(ServedPositionsTest, TheContextIsTheModelsUnlessItIsLowered) {
  LoadOptions options = Million();
  options.checkpoint.config.max_position_embeddings = 4096;
  EXPECT_EQ(ServedPositions(options), 4096);
  options.max_positions = 4096;
  EXPECT_EQ(ServedPositions(options), 4096);
  options.max_positions = 2;
  EXPECT_EQ(ServedPositions(options), 2);
  options.max_positions = 4097;
  EXPECT_EQ(RefusalOf<LoadError>([&] { ServedPositions(options); }),
            "m: max-model-len is 4097; allowed: 2 to 4096, the model's context "
            "(max_position_embeddings)");
}

// A config's two numbers take no more memory than the table of 2^25 elements, or the user's cache.
TEST(ServedPositionsTest, ARotaryTableIsBoundedByTheCache) {
  LoadOptions options = Million();
  options.backend.kv_cache_bytes = int64_t{1} << 20;
  EXPECT_EQ(ServedPositions(options), 1 << 18);
  options.backend.kv_cache_bytes = int64_t{2048} * 300'000;
  EXPECT_EQ(ServedPositions(options), 300'000);
  options.backend.kv_cache_bytes = int64_t{1} << 40;
  EXPECT_EQ(ServedPositions(options), 1 << 20);
  options.backend.kv_cache_bytes = int64_t{1} << 20;
  options.max_positions = 1 << 19;
  EXPECT_EQ(ServedPositions(options), 1 << 18);
  options.max_positions = 1000;
  EXPECT_EQ(ServedPositions(options), 1000);
}

// A window bounds the cache of its layers, so that more positions fit.
TEST(ServedPositionsTest, WindowsLeaveRoomForMorePositions) {
  LoadOptions options = Million();
  ModelConfig& config = options.checkpoint.config;
  config.sliding_window = 1024;
  config.layer_types = {LayerType::kSliding, LayerType::kFull};
  options.backend.kv_cache_bytes = int64_t{2048} * 300'000;
  // Rows of one layer are for the other's full positions. The window's blocks hold as many
  // positions as a step computes, the window, and a block.
  EXPECT_EQ(ServedPositions(options), 2 * 300'000 - (1024 + 512 + 16));
  // Windows in all layers bound only the rotary table: as large as the cache, 512 bytes each.
  config.layer_types.clear();
  EXPECT_EQ(ServedPositions(options), 1 << 20);
  options.backend.kv_cache_bytes = int64_t{512} * 400'000;
  EXPECT_EQ(ServedPositions(options), 400'000);
}

}  // namespace
}  // namespace triptych::loaded_model_test
