// Models in the form of DeepSeek-V3, against its own definition.
#include "engine/decoder/deepseek_form.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/attention/algebra.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/checkpoint/config/config_file.h"
#include "engine/checkpoint/tensors/open_tensors.h"
#include "engine/decoder/convert_weights.h"
#include "engine/decoder/decoder.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/write_weights.h"
#include "tests/support/published_models.h"
#include "tests/support/random_model.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"

namespace triptych::deepseek_form_test {
namespace {

using checkpoint::ConfigForm;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsSubsetOf;
using testing::StartsWith;

// The scores' factor, and products with it, are rounded to float32 once more.
constexpr double kRounding32 = 1e-6;
// The same of bfloat16, in logits of about 1.
constexpr double kRounding16 = 0.02;

ModelConfig Rotary() {
  ModelConfig config = SmallModel(AttentionKind::kGqa);
  config.num_attention_heads = 6;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.position_embedding = PositionEmbedding::kRope;
  config.rope_theta = 100;
  config.norm = NormKind::kRmsNorm;
  config.norm_bias = false;
  config.mlp = MlpKind::kSwiglu;
  config.hidden_act = HiddenAct::kSilu;
  config.mlp_bias = false;
  config.attention_bias = false;
  return config;
}

ModelConfig Latent() {
  ModelConfig config = WithLatents(Rotary(), {9, 9});
  config.num_key_value_heads = config.num_attention_heads;
  config.qk_rope_head_dim = 4;
  return config;
}

std::vector<NamedConfig> EveryForm() {
  std::vector<NamedConfig> all;
  const auto add = [&](const std::string& name, auto change) {
    ModelConfig config = Latent();
    change(config);
    all.push_back({name, config});
  };
  add("Plain", [](ModelConfig&) {});
  add("Ranks", [](ModelConfig& c) { c.kv_lora_rank = {3, 11}; });
  add("ValuesOfAnotherWidth", [](ModelConfig& c) { c.v_head_dim = 5; });
  add("Tied", [](ModelConfig& c) { c.tie_word_embeddings = true; });
  add("Biases", [](ModelConfig& c) {
    c.latent_bias = true;
    c.attention_output_bias = true;
  });
  add("OutputBias", [](ModelConfig& c) { c.attention_output_bias = true; });
  add("Rotation", [](ModelConfig& c) {
    c.rope_factors = {0.7, 31.5};
    c.rope_attention_factor = 1.2;
  });
  add("RotationScale", [](ModelConfig& c) { c.rope_attention_factor = 1.2; });
  add("Scales", [](ModelConfig& c) {
    c.attention_score_factor = 1.7;
    c.scale_attn_by_inverse_layer_idx = true;
    c.embedding_multiplier = 3;
    c.logit_multiplier = 0.3;
  });
  add("ScalesOfATiedEmbedding", [](ModelConfig& c) {
    c.embedding_multiplier = 3;
    c.logit_multiplier = 0.3;
    c.tie_word_embeddings = true;
  });
  add("NormedLatents", [](ModelConfig& c) {
    c.kv_a_layernorm = true;
    c.latent_norm_eps = 1e-6;
  });
  add("NormedQueriesAndLatents", [](ModelConfig& c) {
    c.kv_a_layernorm = c.latent_bias = true;
    c.latent_norm_eps = 1e-6;
    c.q_lora_rank = 7;
  });
  return all;
}

std::vector<int64_t> Ids(const ModelConfig& config) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 24; ++i) ids.push_back((7 * i * i + 3 * i + 1) % config.vocab_size);
  return ids;
}

// [24, vocab] float64
at::Tensor Logits(const Checkpoint& model) {
  return Decoder(model.config, model.weights, ComputeType::kFloat64)
      .Forward(ToTensor(Ids(model.config)).unsqueeze(0))[0];
}

Checkpoint Random(ModelConfig config, TensorFormat format = TensorFormat::kFloat32) {
  config.torch_dtype = format;
  Weights weights = RandomWeights(config, 5);
  return AsStored({.config = std::move(config), .weights = std::move(weights)});
}

// The logits of a config.json and its tensors by DeepSeek-V3's own definition.
at::Tensor PublishedLogits(const Checkpoint& model) {
  const Json config =
      ParseJson(checkpoint::ToJson(model.config, ConfigForm::kDeepseek), "config.json");
  EXPECT_EQ(config.at("model_type"), "deepseek_v3");
  return published::Logits(config, model.weights, Ids(model.config));
}

class DeepseekFormTest : public testing::TestWithParam<NamedConfig> {};

TEST_P(DeepseekFormTest, IsTheSameModelByTheFamilysDefinition) {
  for (const auto& [format, rounding] :
       {std::pair(TensorFormat::kFloat32, kRounding32), {TensorFormat::kBFloat16, kRounding16}}) {
    const Checkpoint from = Random(GetParam().config, format);
    CheckDeepseekForm(from.config, "from");
    const Checkpoint written = AsStored(ToDeepseekForm(from));
    const at::Tensor expected = Logits(from);
    EXPECT_LE(RelativeError(PublishedLogits(written), expected), rounding);
    EXPECT_LE(RelativeError(Logits(written), expected), rounding);
  }
}

TEST_P(DeepseekFormTest, IsReadBack) {
  const Checkpoint written = AsStored(ToDeepseekForm(Random(GetParam().config)));
  const TempDir directory;
  SaveCheckpoint(directory.path() / "model", written.config, written.weights, "", {},
                 ConfigForm::kDeepseek);
  const Checkpoint read = LoadCheckpoint(directory.path() / "model", TensorFormat::kFloat32);
  EXPECT_EQ(checkpoint::ToJson(read.config), checkpoint::ToJson(written.config));
  ASSERT_EQ(read.weights.size(), written.weights.size());
  for (const auto& [name, weight] : written.weights) {
    EXPECT_TRUE(read.weights.at(name).equal(weight)) << name;
  }
}

// The fields of transformers' DeepseekV3Config and of its base class, and the parameters of
// DeepseekV3ForCausalLM without experts, as of transformers 4.57 and 5.0.
TEST_P(DeepseekFormTest, NamesAreThePublishedOnes) {
  const Checkpoint written = AsStored(ToDeepseekForm(Random(GetParam().config)));
  const TempDir directory;
  SaveCheckpoint(directory.path() / "model", written.config, written.weights, "", {},
                 ConfigForm::kDeepseek);
  const Json config = ParseJson(ReadFile(directory.path() / "model" / "config.json"), "config");
  std::set<std::string> fields;
  for (const auto& [name, value] : config.items()) fields.insert(name);
  EXPECT_THAT(fields, IsSubsetOf({"architectures",
                                  "attention_bias",
                                  "attention_dropout",
                                  "bos_token_id",
                                  "eos_token_id",
                                  "first_k_dense_replace",
                                  "hidden_act",
                                  "hidden_size",
                                  "initializer_range",
                                  "intermediate_size",
                                  "kv_lora_rank",
                                  "max_position_embeddings",
                                  "model_type",
                                  "moe_intermediate_size",
                                  "n_group",
                                  "n_routed_experts",
                                  "n_shared_experts",
                                  "norm_topk_prob",
                                  "num_attention_heads",
                                  "num_experts_per_tok",
                                  "num_hidden_layers",
                                  "num_key_value_heads",
                                  "pad_token_id",
                                  "pretraining_tp",
                                  "q_lora_rank",
                                  "qk_nope_head_dim",
                                  "qk_rope_head_dim",
                                  "rms_norm_eps",
                                  "rope_interleave",
                                  "rope_scaling",
                                  "rope_theta",
                                  "routed_scaling_factor",
                                  "tie_word_embeddings",
                                  "topk_group",
                                  "torch_dtype",
                                  "use_cache",
                                  "v_head_dim",
                                  "vocab_size"}));
  EXPECT_EQ(config.at("architectures"), Json::array({"DeepseekV3ForCausalLM"}));
  EXPECT_EQ(config.at("first_k_dense_replace"), config.at("num_hidden_layers"));
  if (!config.at("rope_scaling").is_null()) {
    std::set<std::string> scaling;
    for (const auto& [name, value] : config.at("rope_scaling").items()) scaling.insert(name);
    EXPECT_THAT(scaling, testing::ElementsAre("attention_factor", "factor", "long_factor",
                                              "original_max_position_embeddings", "rope_type",
                                              "short_factor"));
  }

  const bool bias = config.at("attention_bias");
  std::set<std::string> expected = {"model.embed_tokens.weight", "model.norm.weight"};
  if (!config.at("tie_word_embeddings")) expected.insert("lm_head.weight");
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    for (const std::string name :
         {"input_layernorm", "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj",
          "mlp.down_proj", "self_attn.kv_a_proj_with_mqa", "self_attn.kv_a_layernorm",
          "self_attn.kv_b_proj", "self_attn.o_proj"}) {
      expected.insert(layer + name + ".weight");
    }
    std::set<std::string> biased = {"kv_a_proj_with_mqa", "o_proj"};
    if (config.at("q_lora_rank").is_null()) {
      expected.insert(layer + "self_attn.q_proj.weight");
    } else {
      biased.insert("q_a_proj");
      for (const std::string name : {"q_a_proj", "q_a_layernorm", "q_b_proj"}) {
        expected.insert(layer + "self_attn." + name + ".weight");
      }
    }
    for (const std::string& name : biased) {
      if (bias) expected.insert(layer + "self_attn." + name + ".bias");
    }
  }
  const std::vector<std::string> names =
      checkpoint::OpenTensors(directory.path() / "model")->TensorNames();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()), expected);
}

INSTANTIATE_TEST_SUITE_P(Every, DeepseekFormTest, testing::ValuesIn(EveryForm()),
                         [](const auto& each) { return each.param.name; });

TEST(DeepseekForm, ConvertedModelsHaveIt) {
  const Checkpoint from = Random(Rotary());
  for (const int64_t rope : {0, 4}) {
    const Checkpoint mla =
        AsStored(Convert(from, {.attention = AttentionKind::kMla, .rope_head_dim = rope}, "from"));
    CheckDeepseekForm(mla.config, "mla");
    const Checkpoint written = AsStored(ToDeepseekForm(mla));
    EXPECT_LE(RelativeError(PublishedLogits(written), Logits(mla)), kRounding32);
    if (rope == 0) {  // all keys stay rotated
      EXPECT_LE(RelativeError(PublishedLogits(written), Logits(from)), 1e-5);
    }
    EXPECT_THAT(written.config.kv_lora_rank, Each(mla.config.kv_lora_rank.front() + 2));
  }
}

// Without biases and factors: what programs without them read, too.
TEST(DeepseekForm, ModelsThatHaveItAlreadyStayAsTheyAre) {
  ModelConfig config = Latent();
  config.kv_a_layernorm = true;
  config.latent_norm_eps = 1e-6;
  const Checkpoint from = Random(config);
  const Checkpoint written = ToDeepseekForm(from);
  ASSERT_EQ(written.weights.size(), from.weights.size());
  for (const auto& [name, weight] : from.weights) {
    EXPECT_TRUE(written.weights.at(name).equal(weight)) << name;
  }
  const Json json =
      ParseJson(checkpoint::ToJson(written.config, ConfigForm::kDeepseek), "config.json");
  EXPECT_EQ(json.at("attention_bias"), false);
  EXPECT_EQ(json.at("rope_scaling"), nullptr);
}

// The input of a layer that makes its latent the longest, in a model of any size of weights.
TEST(DeepseekForm, NoInputMakesALatentMoreThanItsBound) {
  for (const double size : {1e-6, 1.0, 1e6}) {
    for (const auto& [format, constants] :
         {std::pair(TensorFormat::kFloat32, 0x1p-28), {TensorFormat::kBFloat16, 0x1p-14}}) {
      ModelConfig config = Latent();
      config.latent_bias = true;
      Checkpoint from = Random(config, format);
      const std::string layer = "model.layers.0.";
      const std::string down = layer + "self_attn.kv_a_proj_with_mqa.weight";
      const std::string bias = layer + "self_attn.kv_a_proj_with_mqa.bias";
      from.weights.at(down) = from.weights.at(down) * size;
      from = AsStored(std::move(from));
      const Checkpoint to = AsStored(ToDeepseekForm(from));
      const auto in64 = [](const Checkpoint& model, const std::string& name) {
        return model.weights.at(name).to(at::kDouble);
      };
      const at::Tensor norm = in64(from, layer + "input_layernorm.weight");
      const at::Tensor of_inputs = in64(from, down).slice(0, 0, 9) * norm;
      const at::Tensor direction = std::get<2>(at::linalg_svd(of_inputs, false))[0];
      for (const double sign : {1.0, -1.0, 0.0}) {
        const at::Tensor y =
            sign * direction * std::sqrt(static_cast<double>(config.hidden_size)) * norm;
        const at::Tensor latent = (at::mv(in64(from, down), y) + in64(from, bias)).slice(0, 0, 9);
        const at::Tensor longer = (at::mv(in64(to, down), y) + in64(to, bias)).slice(0, 0, 11);
        const double length = longer.slice(0, 9).norm().item<double>();
        EXPECT_LE(longer.slice(0, 0, 9).norm().item<double>(), kLatentShare * length);
        EXPECT_LE(length, 0x1p15);  // finite in float16
        const at::Tensor normed = longer / at::sqrt(longer.square().mean() + 1e-6) *
                                  in64(to, layer + "self_attn.kv_a_layernorm.weight");
        EXPECT_LE(RelativeError(normed.slice(0, 0, 9), latent),
                  kLatentShare * kLatentShare / 2 + constants);
        EXPECT_THAT(normed.slice(0, 9).abs().max().item<double>(), 0);
      }
    }
  }
}

TEST(DeepseekForm, WhatHasNoPlaceIsRefused) {
  const auto refusal = [](auto change) {
    ModelConfig config = Latent();
    change(config);
    return RefusalOf<LoadError>([&] { CheckDeepseekForm(config, "m"); });
  };
  EXPECT_EQ(refusal([](ModelConfig&) {}), kAccepted);
  EXPECT_EQ(refusal([](ModelConfig& c) { c.position_embedding = PositionEmbedding::kLearned; }),
            "m: position_embedding is \"learned\", which deepseek_v3 has no place for; allowed: "
            "\"rope\"");
  EXPECT_EQ(refusal([](ModelConfig& c) { c.latent_norm_eps = 1e-5, c.kv_a_layernorm = true; }),
            "m: latent_norm_eps is 1e-05, which deepseek_v3 has no place for; allowed: 1e-06");
  EXPECT_EQ(refusal([](ModelConfig& c) { c.attention_bias = true; }),
            "m: attention_bias (of queries) is true, which deepseek_v3 has no place for; allowed: "
            "false");
  using Change = void (*)(ModelConfig&);
  const std::vector<std::pair<std::string, Change>> changes = {
      {"position_embedding is \"none\"",
       [](ModelConfig& c) { c.position_embedding = PositionEmbedding::kNone; }},
      {"norm is \"layer_norm\"", [](ModelConfig& c) { c.norm = NormKind::kLayerNorm; }},
      {"norm_inputs is false", [](ModelConfig& c) { c.norm_inputs = false; }},
      {"norm_outputs is true", [](ModelConfig& c) { c.norm_outputs = true; }},
      {"use_parallel_residual is true", [](ModelConfig& c) { c.use_parallel_residual = true; }},
      {"mlp is \"relu2\"", [](ModelConfig& c) { c.mlp = MlpKind::kRelu2; }},
      {"mlp_bias is true", [](ModelConfig& c) { c.mlp_bias = true; }},
      {"qk_norm is true", [](ModelConfig& c) { c.qk_norm = true; }},
      {"n_routed_experts is 4", [](ModelConfig& c) { c.experts.n_routed_experts = 4; }},
      {"final_logit_softcapping is 30", [](ModelConfig& c) { c.final_logit_softcapping = 30; }},
      {"kv_lora_rank is 3 to 9", [](ModelConfig& c) {
         c.kv_a_layernorm = true, c.latent_norm_eps = 1e-6, c.kv_lora_rank = {9, 3};
       }}};
  for (const auto& [what, change] : changes) {
    EXPECT_THAT(refusal(change), AllOf(StartsWith("m: " + what), HasSubstr("deepseek_v3"),
                                       HasSubstr("; allowed: ")));
  }
}

}  // namespace
}  // namespace triptych::deepseek_form_test
