// Configs of families with experts: the published fields' meaning, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/checkpoint/config/config_file.h"
#include "tests/support/published_configs.h"
#include "tests/support/refusal.h"

namespace triptych::checkpoint::expert_families_test {
namespace {

using published::DeepSeekV2Lite;
using published::DeepSeekV3;
using published::Glm47Flash;
using published::GraniteMoe;
using published::Mixtral;
using published::Moonlight;
using published::Olmoe;
using published::Qwen15Moe;
using published::Qwen3Moe;
using published::With;
using published::Without;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ModelConfig Parse(const Json& config) { return ParseModelConfig(config.dump(), "config.json"); }

ExpertsConfig Experts(const Json& config) { return Parse(config).experts; }

std::string Refusal(const Json& config) {
  return RefusalAfter<LoadError>("config.json: ", [&] { Parse(config); });
}

std::vector<int64_t> Dense(int64_t first, int64_t layers) {
  std::vector<int64_t> flags(static_cast<size_t>(layers), 1);
  std::fill_n(flags.begin(), first, 0);
  return flags;
}

TEST(ExpertFamiliesTest, DeepseekV2) {
  const ExpertsConfig lite = Experts(DeepSeekV2Lite());
  EXPECT_EQ(lite.n_routed_experts, 64);
  EXPECT_EQ(lite.num_experts_per_tok, 6);
  EXPECT_EQ(lite.moe_intermediate_size, 1408);
  EXPECT_EQ(lite.shared_expert_intermediate_size, 2816);
  EXPECT_FALSE(lite.shared_expert_gate || lite.norm_topk_prob);
  EXPECT_EQ(lite.scoring_func, ScoringFunc::kSoftmax);
  EXPECT_EQ(lite.topk_method, TopkMethod::kGreedy);
  EXPECT_EQ(lite.sparse_layers, Dense(1, 27));
  // DeepSeek-V2.
  const Json large = With(DeepSeekV2Lite(), {{"n_routed_experts", 160},
                                             {"n_group", 8},
                                             {"topk_group", 3},
                                             {"topk_method", "group_limited_greedy"},
                                             {"routed_scaling_factor", 16.0}});
  EXPECT_EQ(Experts(large).topk_method, TopkMethod::kGroupLimitedGreedy);
  EXPECT_EQ(Experts(large).n_group, 8);
  EXPECT_EQ(Experts(large).topk_group, 3);
  EXPECT_EQ(Experts(large).routed_scaling_factor, 16);
  // The publisher's code does one of the two.
  EXPECT_EQ(Experts(With(large, {{"norm_topk_prob", true}})).routed_scaling_factor, 1);
  EXPECT_FALSE(
      Experts(With(large, {{"norm_topk_prob", true}, {"num_experts_per_tok", 1}})).norm_topk_prob);
  // Groups that the greedy choice does not read.
  EXPECT_EQ(Experts(With(DeepSeekV2Lite(), {{"n_group", 7}, {"topk_group", 9}})).n_group, 1);
  EXPECT_EQ(Experts(With(DeepSeekV2Lite(), {{"n_shared_experts", nullptr}}))
                .shared_expert_intermediate_size,
            0);
  EXPECT_EQ(Experts(With(DeepSeekV2Lite(), {{"moe_layer_freq", 2}})).sparse_layers[3], 0);
}

TEST(ExpertFamiliesTest, DeepseekV3AndItsKind) {
  const ExpertsConfig three = Experts(DeepSeekV3());
  EXPECT_EQ(three.scoring_func, ScoringFunc::kSigmoid);
  EXPECT_EQ(three.topk_method, TopkMethod::kNoauxTc);
  EXPECT_EQ(three.n_group, 8);
  EXPECT_EQ(three.topk_group, 4);
  EXPECT_TRUE(three.norm_topk_prob);
  EXPECT_EQ(three.routed_scaling_factor, 2.5);
  EXPECT_EQ(three.sparse_layers, Dense(3, 61));
  EXPECT_EQ(Parse(DeepSeekV3()).served_formats,
            WeightFormats(WeightFormat::kInt8, WeightFormat::kBFloat16));
  EXPECT_EQ(ToJson(Parse(With(DeepSeekV3(), {{"model_type", "kimi_k2"}}))),
            ToJson(Parse(DeepSeekV3())));
  const ModelConfig moonlight = Parse(Moonlight());
  EXPECT_EQ(moonlight.experts.routed_scaling_factor, 2.446);
  EXPECT_EQ(moonlight.q_lora_rank, 0);
  EXPECT_EQ(CacheRowElements(moonlight, 0), 576);
  const ModelConfig glm = Parse(Glm47Flash());
  EXPECT_EQ(CacheRowElements(glm, 46), 576);
  EXPECT_EQ(glm.experts.sparse_layers, Dense(1, 47));
  EXPECT_EQ(glm.latent_norm_eps, 1e-6);
  // As transformers 5 writes it.
  std::vector<std::string> types(47, "sparse");
  types[0] = "dense";
  const Json newer = With(
      Without(Glm47Flash(),
              {"first_k_dense_replace", "rope_theta", "rope_scaling", "partial_rotary_factor"}),
      {{"mlp_layer_types", types},
       {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1000000}}}});
  EXPECT_EQ(ToJson(Parse(newer)), ToJson(glm));
}

TEST(ExpertFamiliesTest, LlamasKind) {
  const ExpertsConfig mixtral = Experts(Mixtral());
  EXPECT_EQ(mixtral.n_routed_experts, 8);
  EXPECT_EQ(mixtral.moe_intermediate_size, 14336);
  EXPECT_TRUE(mixtral.norm_topk_prob);
  EXPECT_THAT(mixtral.sparse_layers, IsEmpty());
  EXPECT_EQ(Parse(Mixtral()).max_position_embeddings, 32768);
  const ModelConfig olmoe = Parse(Olmoe());
  EXPECT_TRUE(olmoe.qk_norm_all_heads && olmoe.norm_inputs);
  EXPECT_FALSE(olmoe.experts.norm_topk_prob);
  EXPECT_EQ(olmoe.experts.moe_intermediate_size, 1024);
  const ModelConfig two = Parse(Qwen15Moe());
  EXPECT_TRUE(two.attention_bias && two.experts.shared_expert_gate);
  EXPECT_EQ(two.experts.shared_expert_intermediate_size, 5632);
  EXPECT_FALSE(Parse(With(Qwen15Moe(), {{"qkv_bias", false}})).attention_bias);
  const ModelConfig three = Parse(Qwen3Moe());
  EXPECT_TRUE(three.qk_norm && three.experts.norm_topk_prob);
  EXPECT_EQ(three.experts.n_routed_experts, 128);
  Json some = With(Qwen3Moe(), {{"decoder_sparse_step", 2}, {"mlp_only_layers", {1, 3}}});
  EXPECT_FALSE(Parse(some).HasExperts(0) || Parse(some).HasExperts(3));
  EXPECT_TRUE(Parse(some).HasExperts(5));
  const ModelConfig granite = Parse(GraniteMoe());
  EXPECT_TRUE(granite.experts.norm_topk_prob);
  EXPECT_EQ(granite.experts.moe_intermediate_size, 512);
}

TEST(ExpertFamiliesTest, AreTheSameInTriptychsOwnForm) {
  for (const Json& published :
       {DeepSeekV2Lite(), Moonlight(), Glm47Flash(), Mixtral(), Olmoe(), Qwen15Moe(), Qwen3Moe(),
        GraniteMoe(), Without(DeepSeekV3(), {"quantization_config"})}) {
    const std::string own = ToJson(Parse(published));
    EXPECT_EQ(ToJson(ParseModelConfig(own, "config.json")), own);
  }
}

TEST(ExpertFamiliesTest, RefusesWhatDoesNotFit) {
  const Json v3 = DeepSeekV3();
  const std::vector<std::pair<Json, std::string>> cases = {
      {With(v3, {{"n_routed_experts", 5000}}),
       "n_routed_experts is 5000; allowed: an integer from 0 to 4096"},
      {With(v3, {{"n_routed_experts", -1}}),
       "n_routed_experts is -1; allowed: an integer from 0 to 4096"},
      {With(v3, {{"n_routed_experts", 4096}}),
       "n_routed_experts is 4096; in 58 layers allowed: at most 1129"},
      {With(v3, {{"n_group", 7}}), "n_group is 7; it must divide n_routed_experts = 256"},
      {With(v3, {{"n_group", 0}}), "n_group is 0; allowed: an integer from 1 to 4096"},
      {With(v3, {{"topk_group", 9}}), "topk_group is 9; allowed: an integer from 1 to 8"},
      {With(v3, {{"num_experts_per_tok", 129}}),
       "num_experts_per_tok is 129; allowed: from 1 to the experts that a token chooses from, 128 "
       "of n_routed_experts = 256"},
      {With(v3, {{"moe_intermediate_size", 0}}),
       "moe_intermediate_size is 0; allowed: an integer from 1 to 1048576"},
      {With(v3, {{"moe_intermediate_size", 1 << 20}, {"n_shared_experts", 2}}),
       "n_shared_experts * moe_intermediate_size is 2097152; allowed: an integer from 0 to "
       "1048576"},
      {With(v3, {{"routed_scaling_factor", 0}}),
       "routed_scaling_factor is 0; allowed: a number above 0 and at most 1e+06"},
      {With(v3, {{"scoring_func", "softmax"}}),
       "scoring_func is \"softmax\"; supported: \"sigmoid\""},
      {With(v3, {{"topk_method", "greedy"}}), "topk_method is \"greedy\"; supported: \"noaux_tc\""},
      {Without(v3, {"n_group"}), "n_group is missing"},
      {Without(v3, {"norm_topk_prob"}), "norm_topk_prob is missing"},
      {Without(v3, {"first_k_dense_replace"}), "first_k_dense_replace is missing"},
      {With(v3, {{"hidden_act", "gelu"}}), "hidden_act is \"gelu\"; supported: \"silu\""},
      {With(DeepSeekV2Lite(), {{"scoring_func", "sigmoid"}}),
       "scoring_func is \"sigmoid\"; supported: \"softmax\""},
      {With(DeepSeekV2Lite(), {{"topk_method", "noaux_tc"}}),
       "topk_method is \"noaux_tc\"; supported: \"greedy\", \"group_limited_greedy\""},
      {With(DeepSeekV2Lite(), {{"num_experts_per_tok", nullptr}}),
       "num_experts_per_tok is missing"},
      {With(Glm47Flash(), {{"mlp_layer_types", {"sparse"}}}),
       "mlp_layer_types is a list of 1; allowed: a list of 47, one for each layer"},
      {With(Glm47Flash(), {{"mlp_layer_types", {"linear"}}}),
       "mlp_layer_types is \"linear\"; allowed: \"dense\", \"sparse\""},
      {With(Mixtral(), {{"num_experts_per_tok", 9}}),
       "num_experts_per_tok is 9; allowed: from 1 to the experts that a token chooses from, 8 of "
       "num_local_experts = 8"},
      {With(Mixtral(), {{"num_local_experts", 0}}),
       "num_local_experts is 0; allowed: an integer from 1 to 4096"},
      {With(Olmoe(), {{"clip_qkv", 8.0}}), "clip_qkv is 8.0; supported: null"},
      {With(Qwen3Moe(), {{"mlp_only_layers", {48}}}),
       "mlp_only_layers is 48; allowed: an integer from 0 to 47"},
      {With(Qwen3Moe(), {{"decoder_sparse_step", 0}}),
       "decoder_sparse_step is 0; allowed: an integer from 1 to 1048576"},
      {With(GraniteMoe(), {{"mlp_bias", true}}), "mlp_bias is true; allowed only without experts"},
  };
  for (const auto& [config, refusal] : cases) EXPECT_EQ(Refusal(config), refusal);
  EXPECT_THAT(Refusal(With(Qwen3Moe(), {{"decoder_sparse_step", 49}})),
              HasSubstr("1 for at least one"));
}

Json Own(const Json& fields) {
  return With({{"model_type", "triptych"},
               {"attention", "mha"},
               {"position_embedding", "none"},
               {"norm", "rms_norm"},
               {"mlp", "swiglu"},
               {"torch_dtype", "float32"},
               {"vocab_size", 10},
               {"hidden_size", 8},
               {"intermediate_size", 8},
               {"num_hidden_layers", 2},
               {"num_attention_heads", 2},
               {"max_position_embeddings", 8}},
              fields);
}

TEST(ExpertFamiliesTest, TriptychsOwnFields) {
  const Json experts = {
      {"n_routed_experts", 4},     {"num_experts_per_tok", 2},  {"moe_intermediate_size", 6},
      {"scoring_func", "sigmoid"}, {"topk_method", "noaux_tc"}, {"n_group", 2},
      {"topk_group", 1},           {"sparse_layers", {0, 1}}};
  const ModelConfig config = Parse(Own(experts));
  EXPECT_TRUE(config.HasExperts(1) && !config.HasExperts(0));
  EXPECT_EQ(ToJson(Parse(Json::parse(ToJson(config)))), ToJson(config));
  EXPECT_EQ(Refusal(Own({{"topk_group", 1}})),
            "topk_group is 1; allowed only with n_routed_experts");
  EXPECT_EQ(Refusal(Own(With(experts, {{"topk_method", "best"}}))),
            "topk_method is \"best\"; allowed: \"greedy\", \"group_limited_greedy\", \"noaux_tc\"");
  EXPECT_EQ(Refusal(Own(With(experts, {{"topk_method", "greedy"}}))),
            "n_group is 2; allowed: an integer from 1 to 1");
  EXPECT_EQ(Refusal(Own(With(experts, {{"sparse_layers", {0, 0}}}))),
            "sparse_layers is [0,0]; allowed: 0 or 1 for each of num_hidden_layers = 2, 1 for at "
            "least one");
  EXPECT_EQ(Refusal(Own(With(experts, {{"sparse_layers", {1}}}))),
            "sparse_layers is [1]; allowed: 0 or 1 for each of num_hidden_layers = 2, 1 for at "
            "least one");
  EXPECT_EQ(Refusal(Own(With(experts, {{"shared_expert_gate", true}}))),
            "shared_expert_gate is true; allowed only with shared_expert_intermediate_size");
}

}  // namespace
}  // namespace triptych::checkpoint::expert_families_test
