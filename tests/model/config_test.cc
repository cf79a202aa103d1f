#include "engine/model/config.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/model/cached_layers.h"

namespace triptych::config_test {
namespace {

ModelConfig Mha() {
  ModelConfig config;
  config.hidden_size = 256;
  config.num_hidden_layers = 4;
  config.num_attention_heads = 8;
  config.num_key_value_heads = 8;
  config.head_dim = 32;
  return config;
}

ModelConfig Gqa(int64_t groups = 2, int64_t head_dim = 32) {
  ModelConfig config = Mha();
  config.attention = AttentionKind::kGqa;
  config.num_key_value_heads = groups;
  config.head_dim = head_dim;
  return config;
}

ModelConfig Mla(std::vector<int64_t> ranks = {64, 64, 64, 64}, int64_t rope_dim = 0) {
  ModelConfig config = Mha();
  config.attention = AttentionKind::kMla;
  config.kv_lora_rank = std::move(ranks);
  config.qk_rope_head_dim = rope_dim;
  return config;
}

ModelConfig RopeMla() { return Mla({64, 64, 64, 64}, 16); }

// --- engine/definitions.md#cache-bytes ---------------------------------------------------------

TEST(CacheRowTest, GroupedRowsHoldKeysAndValuesOfEveryGroup) {
  EXPECT_EQ(CacheRowElements(Mha(), 0), 2 * 256);
  EXPECT_EQ(CacheRowElements(Gqa(), 3), 2 * 2 * 32);
  EXPECT_EQ(CacheRowElements(Gqa(1), 0), 2 * 32);
  EXPECT_EQ(CacheRowElements(Gqa(8), 0), 2 * 256);
  EXPECT_EQ(CacheRowElements(Gqa(2, 24), 0), 2 * 2 * 24);
}

TEST(CacheRowTest, LatentRowsHoldTheLatentOnce) {
  EXPECT_EQ(CacheRowElements(Mla(), 0), 64);
  EXPECT_EQ(CacheRowElements(RopeMla(), 0), 64 + 16);
  const ModelConfig ranks = Mla({64, 48, 32, 17}, 16);
  EXPECT_EQ(CacheRowElements(ranks, 1), 48 + 16);
  EXPECT_EQ(CacheRowElements(ranks, 3), 17 + 16);
}

// engine/definitions.md#normed-keys: G inverse norms in float32, whatever the format.
TEST(CacheRowTest, NormedKeysHaveInverseNorms) {
  ModelConfig config = RopeMla();
  config.qk_norm = true;
  config.num_key_value_heads = 2;
  EXPECT_EQ(config.NormedKeys(), 2);
  EXPECT_EQ(Gqa().NormedKeys(), 0);
  EXPECT_EQ(CacheRowElements(config, 0), 64 + 16 + 2);
  for (const auto& [format, bytes] :
       {std::pair(CacheFormat::kFloat32, 80 * 4 + 2 * 4),
        std::pair(CacheFormat::kBFloat16, 80 * 2 + 2 * 4),
        std::pair(CacheFormat::kInt8, 80 + 3 * 2 + 2 * 4),
        std::pair(CacheFormat::kInt4, (64 + 2 * 16) / 2 + 3 * 2 + 2 * 4)}) {
    EXPECT_EQ(CacheRowBytes(config, 0, format), bytes);
    EXPECT_EQ(BytesPerPosition(CachedLayersOf(config), format), 4 * bytes);
    EXPECT_EQ(MakeCacheGeometry(config, format, 16).BytesPerPosition(), 4 * bytes);
  }
  EXPECT_EQ(CacheFormula(CachedLayersOf(config), CacheFormat::kBFloat16),
            "672 bytes a position = 4 layers x ((64 + 16) x 2 bytes + 2 inverse norms x 4 bytes)");
  EXPECT_EQ(
      CacheFormula(CachedLayersOf(config), CacheFormat::kInt8),
      "376 bytes a position = 4 layers x ((64 + 16) x 1 byte + 3 scales x 2 bytes + 2 inverse "
      "norms x 4 bytes)");
  EXPECT_EQ(CacheFormula(CachedLayersOf(config), CacheFormat::kInt4),
            "248 bytes a position = 4 layers x ((64 + 2 x 16) x 1/2 byte + 3 scales x 2 bytes + 2 "
            "inverse norms x 4 bytes)");
}

TEST(CacheRowTest, BytesFollowTheCacheTypeNotTheWeights) {
  const ModelConfig config = Mla({64, 48, 32, 17});
  EXPECT_EQ(CacheRowBytes(config, 3, CacheFormat::kFloat32), 4 * 17);
  EXPECT_EQ(CacheRowBytes(config, 3, CacheFormat::kBFloat16), 2 * 17);
  // An even number of integers, and a two-byte scale for each 32 of them.
  EXPECT_EQ(CacheRowBytes(config, 3, CacheFormat::kInt8), 18 + 2);
  EXPECT_EQ(CacheRowBytes(config, 1, CacheFormat::kInt8), 48 + 2 * 2);
  EXPECT_EQ(CacheRowBytes(config, 0, CacheFormat::kInt8), 64 + 2 * 2);
  EXPECT_EQ(CacheRowBytes(config, 3, CacheFormat::kInt4), 10 + 2);
  EXPECT_EQ(CacheRowBytes(config, 1, CacheFormat::kInt4), 24 + 2 * 2);
  EXPECT_EQ(CacheRowBytes(config, 0, CacheFormat::kInt4), 32 + 2 * 2);
}

TEST(CacheRowTest, ComparesWithMhaOfAsManyHeads) {
  EXPECT_EQ(MhaRowElements(Mha()), 2 * 256);
  EXPECT_EQ(MhaRowElements(Gqa()), 2 * 256);
  EXPECT_EQ(MhaRowElements(Mla()), 2 * 256);
  EXPECT_EQ(MhaRowElements(RopeMla()), 8 * (32 + 16) + 8 * 32);
}

}  // namespace
}  // namespace triptych::config_test
