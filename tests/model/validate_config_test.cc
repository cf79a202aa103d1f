// Rules of a config as a struct, whatever file it comes from.
#include "engine/model/validate_config.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "tests/support/refusal.h"

namespace triptych::validate_config_test {
namespace {

ModelConfig Mha() {
  ModelConfig config;
  config.vocab_size = 258;
  config.hidden_size = 256;
  config.intermediate_size = 1024;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 8;
  config.num_key_value_heads = 8;
  config.head_dim = 32;
  config.max_position_embeddings = 512;
  return config;
}

ModelConfig Rope() {
  ModelConfig config = Mha();
  config.position_embedding = PositionEmbedding::kRope;
  return config;
}

ModelConfig Mla() {
  ModelConfig config = Mha();
  config.attention = AttentionKind::kMla;
  config.kv_lora_rank = {64, 48};
  return config;
}

ModelConfig NormedMla() {
  ModelConfig config = Mla();
  config.qk_norm = true;
  config.num_key_value_heads = 2;
  return config;
}

std::string Refusal(const ModelConfig& config, const ConfigOrigin& origin = {"m"}) {
  return RefusalOf<LoadError>([&] { Validate(config, origin); });
}

using Change = std::function<void(ModelConfig&)>;

struct Case {
  ModelConfig config;
  Change change;
  std::string refusal;
};

TEST(ValidateConfigTest, AcceptsEveryKind) {
  EXPECT_EQ(Refusal(Mha()), "accepted");
  EXPECT_EQ(Refusal(Rope()), "accepted");
  EXPECT_EQ(Refusal(Mla()), "accepted");
  EXPECT_EQ(Refusal(NormedMla()), "accepted");
  ModelConfig gqa = Rope();
  gqa.attention = AttentionKind::kGqa;
  gqa.num_key_value_heads = 2;
  gqa.rope_factors = std::vector<double>(16, 2.0);
  EXPECT_EQ(Refusal(gqa), "accepted");
}

TEST(ValidateConfigTest, RefusesWithFieldValueAndWhatIsAllowed) {
  const std::vector<Case> cases = {
      {Mha(), [](ModelConfig& c) { c.vocab_size = 0; },
       "m: vocab_size is 0; allowed: an integer from 1 to 16777216"},
      {Mha(), [](ModelConfig& c) { c.hidden_size = std::numeric_limits<int64_t>::min(); },
       "m: hidden_size is -9223372036854775808; allowed: an integer from 1 to 1048576"},
      {Mha(), [](ModelConfig& c) { c.num_hidden_layers = 1025; },
       "m: num_hidden_layers is 1025; allowed: an integer from 1 to 1024"},
      {Mha(), [](ModelConfig& c) { c.num_attention_heads = c.num_key_value_heads = 0; },
       "m: num_attention_heads is 0; allowed: an integer from 1 to 1048576"},
      {Mha(), [](ModelConfig& c) { c.head_dim = 0; },
       "m: head_dim is 0; allowed: an integer from 1 to 1048576"},
      {Mha(), [](ModelConfig& c) { c.num_key_value_heads = 4; },
       "m: num_key_value_heads is 4; with attention \"mha\" it must equal num_attention_heads = 8"},
      {Mha(),
       [](ModelConfig& c) {
         c.attention = AttentionKind::kGqa;
         c.num_key_value_heads = 16;
       },
       "m: num_key_value_heads is 16; allowed: an integer from 1 to 8"},
      {Mha(),
       [](ModelConfig& c) {
         c.attention = AttentionKind::kGqa;
         c.num_key_value_heads = 3;
       },
       "m: num_key_value_heads is 3; it must divide num_attention_heads = 8"},
      {Mha(), [](ModelConfig& c) { c.attention_score_factor = 0; },
       "m: attention_score_factor is 0; allowed: a number above 0 and at most 1e+06"},
      {Mha(), [](ModelConfig& c) { c.kv_lora_rank = {64}; },
       "m: kv_lora_rank is [64]; allowed only with attention \"mla\", not \"mha\""},
      {Mha(), [](ModelConfig& c) { c.latent_norm_eps = 1e-5; },
       "m: latent_norm_eps is 1e-05; allowed only with attention \"mla\", not \"mha\""},
      {Mla(), [](ModelConfig& c) { c.kv_lora_rank = {64}; },
       "m: kv_lora_rank is [64]; a list must hold one rank for each of num_hidden_layers = 2"},
      {Mla(),
       [](ModelConfig& c) {
         c.kv_lora_rank = {64, 0};
       },
       "m: kv_lora_rank is 0; allowed: an integer from 1 to 1048576"},
      {NormedMla(), [](ModelConfig& c) { c.qk_norm_all_heads = true; },
       "m: qk_norm_all_heads is true; allowed only with attention \"mha\" or \"gqa\""},
      {NormedMla(), [](ModelConfig& c) { c.q_lora_rank = 3; },
       "m: q_lora_rank is 3; it must be 0 with attention \"mla\" and qk_norm true"},
      {NormedMla(), [](ModelConfig& c) { c.head_grouping = HeadGrouping::kContiguous; },
       "m: head_grouping is \"contiguous\"; with attention \"mla\" and qk_norm true allowed: "
       "\"modular\""},
      {NormedMla(), [](ModelConfig& c) { c.num_key_value_heads = 3; },
       "m: num_key_value_heads is 3; it must divide num_attention_heads = 8"},
      {Mla(), [](ModelConfig& c) { c.qk_rope_head_dim = 16; },
       "m: qk_rope_head_dim is 16; it must be 0 unless position_embedding is \"rope\""},
      {Rope(), [](ModelConfig& c) { c.head_dim = 33; },
       "m: head_dim is 33; it must be even with rotary positions"},
      {Rope(),
       [](ModelConfig& c) {
         c.rope_factors = {1, 2};
       },
       "m: rope_factors is [1.0,2.0]; allowed: a list of 16, one for each rotated pair, each a "
       "number from 1e-18 to 1e+18"},
      {Rope(), [](ModelConfig& c) { c.rope_attention_factor = 2e6; },
       "m: rope_attention_factor is 2e+06; allowed: a number above 0 and at most 1e+06"},
      {Rope(),
       [](ModelConfig& c) {
         c.position_embedding = PositionEmbedding::kSinusoidal;
         c.max_position_embeddings = 1 << 24;
       },
       "m: max_position_embeddings is 16777216; with sinusoidal positions of width 256 allowed: an "
       "integer from 2 to 131072"},
      {Mha(), [](ModelConfig& c) { c.norm_eps = std::numeric_limits<double>::quiet_NaN(); },
       "m: norm_eps is nan; allowed: a number above 0 and at most 1"},
      {Mha(), [](ModelConfig& c) { c.norm_bias = true; },
       "m: norm_bias is true; allowed only with norm \"layer_norm\""},
      {Mha(), [](ModelConfig& c) { c.hidden_act = HiddenAct::kGelu; },
       "m: hidden_act is \"gelu\"; mlp \"swiglu\" allows \"silu\""},
      {Mha(), [](ModelConfig& c) { c.mlp = MlpKind::kGeglu; },
       "m: hidden_act is \"silu\"; mlp \"geglu\" allows \"gelu\""},
      {Mha(), [](ModelConfig& c) { c.mlp = MlpKind::kRelu2; },
       "m: hidden_act is \"silu\"; mlp \"relu2\" allows \"relu2\""},
      {Mha(), [](ModelConfig& c) { c.norm_inputs = false; },
       "m: norm_inputs is false; allowed only with norm_outputs true"},
      {Mha(), [](ModelConfig& c) { c.use_parallel_residual = c.norm_outputs = true; },
       "m: use_parallel_residual is true; allowed only with norm_inputs true and norm_outputs "
       "false"},
      {Mha(), [](ModelConfig& c) { c.qk_norm_all_heads = true; },
       "m: qk_norm_all_heads is true; allowed only with qk_norm true"},
      {Mha(), [](ModelConfig& c) { c.rotary_dim = 4; },
       "m: rotary_dim is 4; allowed only with rotary positions, not with attention \"mla\""},
      {Rope(), [](ModelConfig& c) { c.rotary_dim = 34; },
       "m: rotary_dim is 34; allowed: an even number from 0 to head_dim = 32"},
      {Rope(), [](ModelConfig& c) { c.rotary_dim = 7; },
       "m: rotary_dim is 7; allowed: an even number from 0 to head_dim = 32"},
      {Rope(), [](ModelConfig& c) { c.no_rope_layers = {1}; },
       "m: no_rope_layers is [1]; allowed: 0 or 1 for each of num_hidden_layers = 2"},
      {Mla(),
       [](ModelConfig& c) {
         c.no_rope_layers = {1, 0};
       },
       "m: no_rope_layers is [1,0]; allowed only with rotary positions, not with attention "
       "\"mla\""},
      {Mha(), [](ModelConfig& c) { c.quantization = {.format = WeightFormat::kBFloat16}; },
       "m: quantization_config is \"bfloat16\"; allowed: int8, int4"},
      {Mha(), [](ModelConfig& c) { c.training_texts.resize(65); },
       "m: training_texts is a list of 65; " + AllowedTrainingTexts()},
      {Mha(),
       [](ModelConfig& c) {
         c.training_texts = {{"0a", 0}};
       },
       "m: training_texts is {\"held_out\":0.0,\"sha256\":\"0a\"}; " + AllowedTrainingTexts()},
  };
  for (const auto& [base, change, refusal] : cases) {
    ModelConfig config = base;
    change(config);
    EXPECT_EQ(Refusal(config), refusal);
  }
}

TEST(ValidateConfigTest, WindowsAndSoftcaps) {
  ModelConfig valid = Rope();
  valid.sliding_window = 7;
  valid.layer_types = {LayerType::kSliding, LayerType::kFull};
  valid.attn_logit_softcapping = 50;
  valid.final_logit_softcapping = 30;
  valid.rope_local_base_freq = 100;
  EXPECT_EQ(Refusal(valid), "accepted");
  EXPECT_EQ(valid.Window(0), 7);
  EXPECT_EQ(valid.Window(1), kNoWindow);
  EXPECT_TRUE(valid.HasWindows() && valid.TurnsLocally(0) && !valid.TurnsLocally(1));
  // A window as long as the context is none.
  valid.max_position_embeddings = 7;
  EXPECT_FALSE(valid.HasWindows());
  EXPECT_EQ(valid.Window(0), kNoWindow);
  EXPECT_TRUE(valid.TurnsLocally(0));
  valid.max_position_embeddings = 512;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto refusal = [&](const Change& change, const ModelConfig& from) {
    ModelConfig config = from;
    change(config);
    return Refusal(config);
  };
  EXPECT_EQ(refusal([](ModelConfig& c) { c.sliding_window = -1; }, valid),
            "m: sliding_window is -1; allowed: an integer from 0 to 16777216");
  EXPECT_EQ(refusal([](ModelConfig& c) { c.layer_types.pop_back(); }, valid),
            "m: layer_types is [\"sliding_attention\"]; allowed: a list of num_hidden_layers = 2");
  EXPECT_EQ(refusal([](ModelConfig& c) { c.layer_types.assign(2, LayerType::kFull); }, Rope()),
            "m: layer_types is [\"full_attention\",\"full_attention\"]; allowed only with "
            "sliding_window");
  EXPECT_EQ(refusal([](ModelConfig& c) { c.rope_local_base_freq = 10; }, Rope()),
            "m: rope_local_base_freq is 10; allowed only with sliding_window");
  for (const double cap : {-1.0, nan, 1e7}) {
    EXPECT_TRUE(refusal([&](ModelConfig& c) { c.attn_logit_softcapping = cap; }, valid)
                    .starts_with("m: attn_logit_softcapping is "));
    EXPECT_TRUE(refusal([&](ModelConfig& c) { c.final_logit_softcapping = cap; }, valid)
                    .starts_with("m: final_logit_softcapping is "));
  }
  EXPECT_EQ(refusal([](ModelConfig& c) { c.sliding_window = 5; }, Mla()),
            "m: sliding_window is 5; allowed only with attention \"mha\" or \"gqa\"");
  EXPECT_EQ(refusal([](ModelConfig& c) { c.attn_logit_softcapping = 5; }, Mla()),
            "m: attn_logit_softcapping is 5; allowed only with attention \"mha\" or \"gqa\"");
}

TEST(ValidateConfigTest, RefusesATextThatStandsTwice) {
  ModelConfig config = Mha();
  config.training_texts = {{std::string(64, 'a'), 0}, {std::string(64, 'b'), 0}};
  EXPECT_EQ(Refusal(config), "accepted");
  config.training_texts.push_back({std::string(64, 'a'), 0.5});
  EXPECT_NE(Refusal(config).find("; allowed: each text once"), std::string::npos);
}

TEST(ValidateConfigTest, NamesFieldsAsTheFileDoes) {
  ModelConfig config = Mha();
  config.num_key_value_heads = 4;
  const ConfigOrigin origin{"m.gguf",
                            {{"num_attention_heads", "llama.attention.head_count"},
                             {"num_key_value_heads", "llama.attention.head_count_kv"}}};
  EXPECT_EQ(Refusal(config, origin),
            "m.gguf: llama.attention.head_count_kv is 4; with attention \"mha\" it must equal "
            "llama.attention.head_count = 8");
}

}  // namespace
}  // namespace triptych::validate_config_test
