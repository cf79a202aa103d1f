// Configs as they are published: what they become, and what is refused.
#include "engine/checkpoint/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/checkpoint/config_file.h"

namespace triptych {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Json = nlohmann::json;

ModelConfig Parse(const Json& config) { return ParseModelConfig(config.dump(), "config.json"); }

std::string Refusal(const Json& config) {
  try {
    Parse(config);
  } catch (const LoadError& e) {
    return e.what();
  }
  return "accepted";
}

Json With(Json config, const Json& changes) {
  config.update(changes);
  return config;
}

// The fields of HuggingFaceTB/SmolLM2-135M's config.json.
Json SmolLm2() {
  return Json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 576,
    "initializer_range": 0.041666666666666664, "intermediate_size": 1536,
    "is_llama_config": true, "max_position_embeddings": 8192, "mlp_bias": false,
    "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30,
    "num_key_value_heads": 3, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000,
    "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.40.1",
    "use_cache": true, "vocab_size": 49152})");
}

// Of meta-llama/Llama-3.2-1B.
Json Llama32() {
  return Json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 64,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16,
    "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256})");
}

// Of mistralai/Mistral-7B-v0.1.
Json Mistral() {
  return Json::parse(R"({
    "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
    "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "transformers_version": "4.34.0.dev0", "use_cache": true, "vocab_size": 32000})");
}

// Of Qwen/Qwen2.5-0.5B.
Json Qwen25() {
  return Json::parse(R"({
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
    "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24,
    "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers_version": "4.40.1", "use_cache": true, "use_mrope": false,
    "use_sliding_window": false, "vocab_size": 151936})");
}

// Of Qwen/Qwen3-0.6B.
Json Qwen3() {
  return Json::parse(R"({
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
    "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
    "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
    "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
    "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})");
}

// Of openai-community/gpt2.
Json Gpt2() {
  return Json::parse(R"({
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
    "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768,
    "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1,
    "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true,
    "summary_type": "cls_index", "summary_use_proj": true,
    "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
    "vocab_size": 50257})");
}

// Of deepseek-ai/DeepSeek-V2-Lite, but for its experts.
Json DeepSeek() {
  return Json::parse(R"({
    "architectures": ["DeepseekV2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV2Config"}, "aux_loss_alpha": 0.001,
    "bos_token_id": 100000, "eos_token_id": 100001, "first_k_dense_replace": 1,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 10944, "kv_lora_rank": 512, "max_position_embeddings": 163840,
    "model_type": "deepseek_v2", "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_group": 1,
    "n_routed_experts": null, "n_shared_experts": 2, "norm_topk_prob": false,
    "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27,
    "num_key_value_heads": 16, "pretraining_tp": 1, "q_lora_rank": null, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
    "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707,
                     "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096,
                     "type": "yarn"},
    "rope_theta": 10000, "routed_scaling_factor": 1.0, "scoring_func": "softmax", "seq_aux": true,
    "tie_word_embeddings": false, "topk_group": 1, "topk_method": "greedy",
    "torch_dtype": "bfloat16", "transformers_version": "4.33.1", "use_cache": true,
    "v_head_dim": 128, "vocab_size": 102400})");
}

// Of openbmb/MiniCPM3-4B, its sixteen factors shortened to ones.
Json MiniCpm3() {
  Json config = Json::parse(R"({
    "architectures": ["MiniCPM3ForCausalLM"], "bos_token_id": 1, "eos_token_id": [2, 73440],
    "initializer_range": 0.1, "hidden_act": "silu", "hidden_size": 2560,
    "intermediate_size": 6400, "max_position_embeddings": 32768, "model_type": "minicpm3",
    "num_attention_heads": 40, "num_hidden_layers": 62, "num_key_value_heads": 40,
    "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "q_lora_rank": 768, "kv_lora_rank": 256,
    "rms_norm_eps": 1e-05, "torch_dtype": "bfloat16", "transformers_version": "4.41.0",
    "use_cache": true, "vocab_size": 73448, "scale_emb": 12, "dim_model_base": 256,
    "scale_depth": 1.4})");
  const std::vector<double> ones(16, 1.0);
  config["rope_scaling"] = {{"type", "longrope"},
                            {"long_factor", ones},
                            {"short_factor", ones},
                            {"original_max_position_embeddings", 32768}};
  return config;
}

TEST(FamiliesTest, Llama) {
  const ModelConfig config = Parse(SmolLm2());
  EXPECT_EQ(config.attention, AttentionKind::kGqa);
  EXPECT_EQ(config.num_key_value_heads, 3);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.head_grouping, HeadGrouping::kContiguous);
  EXPECT_FALSE(config.rope_interleave);
  EXPECT_EQ(config.rope_theta, 100000);
  EXPECT_THAT(config.rope_factors, IsEmpty());
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.torch_dtype, TensorFormat::kBFloat16);
  EXPECT_EQ(Parse(With(SmolLm2(), {{"num_key_value_heads", 9}})).attention, AttentionKind::kMha);
  // Twice the first and last of the stretched frequencies; by the paper's definition high ones
  // stay.
  const ModelConfig stretched = Parse(Llama32());
  ASSERT_THAT(stretched.rope_factors, SizeIs(32));
  EXPECT_EQ(stretched.rope_factors.front(), 1);
  EXPECT_DOUBLE_EQ(stretched.rope_factors.back(), 32);
  EXPECT_EQ(stretched.max_position_embeddings, 131072);
}

TEST(FamiliesTest, MistralIsServedUpToItsWindow) {
  EXPECT_EQ(Parse(Mistral()).max_position_embeddings, 4096);
  EXPECT_EQ(Parse(With(Mistral(), {{"sliding_window", nullptr}})).max_position_embeddings, 32768);
  Json silent = Mistral();
  silent.erase("sliding_window");
  EXPECT_EQ(Parse(silent).max_position_embeddings, 4096);
}

TEST(FamiliesTest, Qwen) {
  const ModelConfig two = Parse(Qwen25());
  EXPECT_TRUE(two.attention_bias);
  EXPECT_FALSE(two.OutputBias());
  EXPECT_FALSE(two.qk_norm);
  EXPECT_EQ(two.max_position_embeddings, 32768);
  const ModelConfig three = Parse(Qwen3());
  EXPECT_FALSE(three.attention_bias);
  EXPECT_TRUE(three.qk_norm);
  EXPECT_EQ(three.head_dim, 128);
  // Windows of the layers from max_window_layers on, or of those that layer_types names.
  const Json windows = {{"use_sliding_window", true}, {"sliding_window", 1024}};
  EXPECT_EQ(Parse(With(Qwen25(), windows)).max_position_embeddings, 32768);
  Json some = With(With(Qwen25(), windows), {{"max_window_layers", 12}});
  EXPECT_EQ(Parse(some).max_position_embeddings, 1024);
  some["layer_types"] = std::vector<std::string>(24, "full_attention");
  EXPECT_EQ(Parse(some).max_position_embeddings, 32768);
  some["layer_types"][3] = "sliding_attention";
  EXPECT_EQ(Parse(some).max_position_embeddings, 1024);
  some.erase("sliding_window");
  EXPECT_EQ(Parse(some).max_position_embeddings, 4096);
  some["sliding_window"] = nullptr;
  EXPECT_EQ(Parse(some).max_position_embeddings, 32768);
}

TEST(FamiliesTest, Gpt2) {
  const ModelConfig config = Parse(Gpt2());
  EXPECT_EQ(config.attention, AttentionKind::kMha);
  EXPECT_EQ(config.position_embedding, PositionEmbedding::kLearned);
  EXPECT_EQ(config.norm, NormKind::kLayerNorm);
  EXPECT_EQ(config.hidden_act, HiddenAct::kGelu);
  EXPECT_EQ(config.intermediate_size, 3072);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.torch_dtype, TensorFormat::kFloat32);
}

TEST(FamiliesTest, LatentOnes) {
  const ModelConfig config = Parse(DeepSeek());
  EXPECT_EQ(config.attention, AttentionKind::kMla);
  EXPECT_EQ(CacheRowElements(config), std::vector<int64_t>(27, 576));
  EXPECT_EQ(config.q_lora_rank, 0);
  EXPECT_TRUE(config.rope_interleave);
  EXPECT_EQ(config.rope_attention_factor, 1);
  // DeepSeek-V2, section 3.1.4: 0.0707 ln s + 1 of both sides of a score.
  EXPECT_DOUBLE_EQ(config.attention_score_factor, std::pow(0.0707 * std::log(40.0) + 1, 2));
  const ModelConfig small = Parse(MiniCpm3());
  EXPECT_EQ(small.q_lora_rank, 768);
  EXPECT_EQ(small.ValueDim(), 64);
  EXPECT_FALSE(small.rope_interleave);
  EXPECT_TRUE(small.tie_word_embeddings);
  EXPECT_THAT(small.rope_factors, Each(1.0));
  EXPECT_DOUBLE_EQ(small.logit_multiplier, 0.1);
  EXPECT_DOUBLE_EQ(small.embedding_multiplier, 12 / (1.4 / std::sqrt(62.0)));
}

TEST(FamiliesTest, Float16IsServedInBfloat16) {
  EXPECT_EQ(Parse(With(SmolLm2(), {{"torch_dtype", "float16"}})).torch_dtype,
            TensorFormat::kBFloat16);
  EXPECT_THAT(Refusal(With(SmolLm2(), {{"torch_dtype", "float8"}})), HasSubstr("\"float16\""));
}

TEST(FamiliesTest, RotationsByTheirNewName) {
  Json renamed = Llama32();
  Json rope = renamed["rope_scaling"];
  rope["rope_theta"] = renamed["rope_theta"];
  renamed.erase("rope_scaling");
  renamed.erase("rope_theta");
  renamed["rope_parameters"] = rope;
  EXPECT_EQ(ToJson(Parse(renamed)), ToJson(Parse(Llama32())));
}

struct Case {
  Json config;
  std::string field, allowed;
};

TEST(FamiliesTest, WhatChangesTheComputationAndIsNotKnownIsRefused) {
  const auto scaled = [](const Json& scaling) {
    return With(SmolLm2(), {{"rope_scaling", scaling}});
  };
  const Json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}};
  const std::vector<Case> cases = {
      {With(SmolLm2(), {{"model_type", "mixtral"}}), "model_type", "\"qwen3\""},
      {With(SmolLm2(), {{"hidden_act", "gelu"}}), "hidden_act is \"gelu\"", "\"silu\""},
      {With(SmolLm2(), {{"quantization_config", Json::object()}}), "quantization_config",
       "not a field that is known"},
      {With(SmolLm2(), {{"num_local_experts", 8}}), "num_local_experts", "not a field"},
      {With(SmolLm2(), {{"partial_rotary_factor", 0.5}}), "partial_rotary_factor is 0.5", "1.0"},
      {With(SmolLm2(), {{"is_encoder_decoder", true}}), "is_encoder_decoder is true", "false"},
      {With(SmolLm2(), {{"num_key_value_heads", 4}}), "num_key_value_heads is 4", "must divide"},
      {With(SmolLm2(), {{"head_dim", 63}}), "head_dim is 63", "even"},
      {With(SmolLm2(), {{"max_position_embeddings", 1 << 22}}), "max_position_embeddings",
       "allowed: an integer from 2 to"},
      {With(SmolLm2(), {{"rope_theta", 0.5}}), "rope_theta", "above 1"},
      {scaled({{"rope_type", "su"}}), "rope_type is \"su\"", "\"longrope\""},
      {scaled({{"type", "linear"}}), "rope_scaling: factor is missing", ""},
      {scaled({{"type", "linear"}, {"factor", 1e-300}}), "rope_factors", "1e-18"},
      {scaled({{"type", "linear"}, {"factor", 2}, {"new", 1}}), "rope_scaling: new", "not a field"},
      {scaled(With(yarn, {{"mscale", 1.0}})), "mscale is 1.0", "together, or neither"},
      {scaled({{"rope_type", "llama3"},
               {"factor", 8},
               {"low_freq_factor", 4},
               {"high_freq_factor", 4}}),
       "high_freq_factor is 4", "above low_freq_factor"},
      {scaled(7), "rope_scaling is 7", "an object"},
      {With(Llama32(), {{"rope_parameters", Json::object()}}), "rope_parameters",
       "no rope_scaling"},
      {With(Qwen25(), {{"use_mrope", true}}), "use_mrope is true", "false"},
      {With(Gpt2(), {{"activation_function", "relu"}}), "activation_function is \"relu\"",
       "\"gelu_new\""},
      {With(Gpt2(), {{"n_head", 7}}), "n_head is 7", "must divide n_embd"},
      {With(Gpt2(), {{"add_cross_attention", true}}), "add_cross_attention", "false"},
      {With(DeepSeek(), {{"n_routed_experts", 64}}), "n_routed_experts is 64",
       "first_k_dense_replace"},
      {With(DeepSeek(), {{"num_key_value_heads", 4}}), "num_key_value_heads is 4", "16"},
      {With(MiniCpm3(), {{"v_head_dim", 32}}), "v_head_dim is 32", "64"},
      {With(MiniCpm3(), {{"scale_depth", 1e-300}}), "scale_depth is 1e-300", "0.001"},
  };
  for (const auto& [config, field, allowed] : cases) {
    EXPECT_THAT(Refusal(config),
                AllOf(HasSubstr("config.json"), HasSubstr(field), HasSubstr(allowed)));
  }
  for (const auto& [config, field] :
       std::vector<std::pair<Json, std::string>>{{Mistral(), "num_key_value_heads"},
                                                 {Qwen3(), "head_dim"},
                                                 {DeepSeek(), "q_lora_rank"},
                                                 {MiniCpm3(), "scale_emb"},
                                                 {SmolLm2(), "hidden_size"}}) {
    Json without = config;
    without.erase(field);
    EXPECT_EQ(Refusal(without), "config.json: " + field + " is missing");
  }
}

// Experts are no matter where no layer has them.
TEST(FamiliesTest, DenseLayersAlone) {
  const Json config = With(DeepSeek(), {{"n_routed_experts", 64}, {"first_k_dense_replace", 27}});
  EXPECT_EQ(ToJson(Parse(config)), ToJson(Parse(DeepSeek())));
}

TEST(FamiliesTest, WhatAConfigBecomesIsReadBack) {
  for (const Json& config :
       {SmolLm2(), Llama32(), Mistral(), Qwen25(), Qwen3(), Gpt2(), DeepSeek(), MiniCpm3()}) {
    const std::string text = ToJson(Parse(config));
    EXPECT_EQ(ToJson(ParseModelConfig(text, "config.json")), text);
  }
}

}  // namespace
}  // namespace triptych
