#include "engine/checkpoint/llama2c_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "tests/support/llama2c_file.h"
#include "tests/support/refusal.h"
#include "tests/support/shared_data.h"
#include "tests/support/temp_dir.h"

namespace triptych::checkpoint::llama2c_model_test {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

constexpr Llama2cHeader kGood = {8, 12, 2, 4, 2, 5, 16};

class Llama2cModelTest : public testing::Test {
 protected:
  std::string Refusal(const std::string& bytes) const {
    WriteFile(path_, bytes);
    return RefusalAfter<LoadError>(path_.string() + ": ", [&] { OpenLlama2c(path_); });
  }
  // The refusal of a file with the length of a good one.
  std::string Refusal(const Llama2cHeader& header) const {
    return Refusal(BytesOf(header) + Llama2cModel(kGood).substr(sizeof(header)));
  }

  const TempDir directory_;
  const std::filesystem::path path_ = directory_.path() / "m.bin";
};

// The number that a tensor begins with, in steps; -1 if it is not there.
float First(const TensorSource& source, const std::string& tensor) {
  if (source.Find(tensor) == nullptr) return -1;
  std::vector<float> floats(source.Find(tensor)->bytes / sizeof(float));
  source.Read(tensor, std::as_writable_bytes(std::span(floats)));
  return floats.front() * 64;
}

TEST_F(Llama2cModelTest, TensorsLieOneKindAfterTheOther) {
  WriteFile(path_, Llama2cModel(kGood));
  const OpenedCheckpoint opened = OpenLlama2c(path_);
  const ModelConfig& config = opened.config;
  EXPECT_EQ(config.attention, AttentionKind::kGqa);
  EXPECT_EQ(config.hidden_size, 8);
  EXPECT_EQ(config.intermediate_size, 12);
  EXPECT_EQ(config.num_hidden_layers, 2);
  EXPECT_EQ(config.num_attention_heads, 4);
  EXPECT_EQ(config.num_key_value_heads, 2);
  EXPECT_EQ(config.vocab_size, 5);
  EXPECT_EQ(config.max_position_embeddings, 16);
  EXPECT_EQ(config.head_grouping, HeadGrouping::kContiguous);
  EXPECT_TRUE(config.rope_interleave);
  EXPECT_EQ(config.rope_theta, 10000);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_TRUE(config.tie_word_embeddings);
  const TensorSource& tensors = *opened.tensors;
  EXPECT_EQ(tensors.name(), path_.string());
  EXPECT_EQ(tensors.TensorNames().size(), 2u + 2 * 9);
  EXPECT_THAT(tensors.Find("model.layers.1.self_attn.k_proj.weight")->shape, ElementsAre(4, 8));
  EXPECT_THAT(tensors.Find("model.layers.1.mlp.down_proj.weight")->shape, ElementsAre(8, 12));
  // 40 of the embedding, 2 x 8 of norms, 2 x 64 of queries, 2 x 32 of keys and of values, 2 x 64
  // of outputs, norms, then gates, downs and ups of 2 x 96.
  EXPECT_EQ(First(tensors, "model.embed_tokens.weight"), 0);
  EXPECT_EQ(First(tensors, "model.layers.1.input_layernorm.weight"), 48);
  EXPECT_EQ(First(tensors, "model.layers.0.self_attn.q_proj.weight"), 56);
  EXPECT_EQ(First(tensors, "model.layers.1.self_attn.q_proj.weight"), 120);
  EXPECT_EQ(First(tensors, "model.layers.0.self_attn.k_proj.weight"), 184);
  EXPECT_EQ(First(tensors, "model.layers.0.self_attn.v_proj.weight"), 248);
  EXPECT_EQ(First(tensors, "model.layers.0.self_attn.o_proj.weight"), 312);
  EXPECT_EQ(First(tensors, "model.layers.0.post_attention_layernorm.weight"), 440);
  EXPECT_EQ(First(tensors, "model.layers.0.mlp.gate_proj.weight"), 456);
  EXPECT_EQ(First(tensors, "model.layers.0.mlp.down_proj.weight"), 648);
  EXPECT_EQ(First(tensors, "model.layers.0.mlp.up_proj.weight"), 840);
  EXPECT_EQ(First(tensors, "model.norm.weight"), 1032);
  EXPECT_EQ(tensors.Find("lm_head.weight"), nullptr);
}

TEST_F(Llama2cModelTest, ANegativeVocabularyHasAnOutputMatrix) {
  WriteFile(path_, Llama2cModel({8, 12, 2, 4, 4, -5, 16}));
  const OpenedCheckpoint opened = OpenLlama2c(path_);
  EXPECT_EQ(opened.config.attention, AttentionKind::kMha);
  EXPECT_FALSE(opened.config.tie_word_embeddings);
  EXPECT_EQ(opened.config.vocab_size, 5);
  // After the tables of positions, which are no weights.
  EXPECT_EQ(First(*opened.tensors, "lm_head.weight"), 1032 + 2 * 2 * 32 + 8);
}

TEST_F(Llama2cModelTest, RefusesOtherLengths) {
  const std::string good = Llama2cModel(kGood);
  ASSERT_EQ(Refusal(good), "accepted");
  for (const size_t size : {size_t{0}, size_t{1}, size_t{27}}) {
    EXPECT_EQ(Refusal(good.substr(0, size)),
              std::to_string(size) + " bytes is too short for llama2.c's header");
  }
  const std::string takes = "; a model of its header takes " + std::to_string(good.size());
  for (const size_t size : {size_t{28}, size_t{29}, good.size() - 1}) {
    EXPECT_EQ(Refusal(good.substr(0, size)), "is " + std::to_string(size) + " bytes" + takes);
  }
  EXPECT_EQ(Refusal(good + "x"), "is " + std::to_string(good.size() + 1) + " bytes" + takes);
}

TEST_F(Llama2cModelTest, RefusesOtherHeaders) {
  EXPECT_EQ(Refusal(Llama2cHeader{0, 12, 2, 4, 2, 5, 16}),
            "dim is 0; allowed: an integer from 1 to 1048576");
  EXPECT_THAT(Refusal(Llama2cHeader{8, -1, 2, 4, 2, 5, 16}), StartsWith("hidden_dim is -1"));
  EXPECT_THAT(Refusal(Llama2cHeader{8, 12, 2000, 4, 2, 5, 16}), StartsWith("n_layers is 2000"));
  EXPECT_THAT(Refusal(Llama2cHeader{8, 12, 2, 3, 3, 5, 16}),
              StartsWith("n_heads is 3; it must divide"));
  EXPECT_THAT(Refusal(Llama2cHeader{8, 12, 2, 4, 3, 5, 16}),
              StartsWith("n_kv_heads is 3; it must divide"));
  EXPECT_THAT(Refusal(Llama2cHeader{8, 12, 2, 4, 0, 5, 16}), StartsWith("n_kv_heads is 0"));
  EXPECT_THAT(Refusal(Llama2cHeader{8, 12, 2, 4, 2, 0, 16}), StartsWith("vocab_size is 0"));
  EXPECT_THAT(Refusal(Llama2cHeader{8, 12, 2, 4, 2, INT32_MIN, 16}),
              StartsWith("vocab_size is 2147483648"));
  EXPECT_THAT(Refusal(Llama2cHeader{8, 12, 2, 4, 2, 5, 1}), StartsWith("seq_len is 1"));
  // The largest that may be are only too long for the file.
  EXPECT_THAT(Refusal(Llama2cHeader{1 << 20, 1 << 20, 1024, 1 << 10, 1 << 10, 1 << 24, 2}),
              testing::HasSubstr("a model of its header takes"));
  // llama2.c's later versions begin with a number of their own.
  EXPECT_THAT(Refusal(Llama2cHeader{0x616b3432, 1, 8, 12, 2, 4, 2}),
              StartsWith("dim is 1634415666"));
}

TEST_F(Llama2cModelTest, ARealModel) {
  const std::filesystem::path file = SharedData() / "stories260K" / "stories260K.bin";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no " << file;
  const OpenedCheckpoint opened = OpenLlama2c(file);
  EXPECT_EQ(opened.config.hidden_size, 64);
  EXPECT_EQ(opened.config.num_key_value_heads, 4);
  EXPECT_EQ(opened.config.vocab_size, 512);
  EXPECT_TRUE(opened.config.tie_word_embeddings);
}

}  // namespace
}  // namespace triptych::checkpoint::llama2c_model_test
