#include "engine/checkpoint/config/published_quantization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/checkpoint/config/config_file.h"
#include "tests/support/published_configs.h"
#include "tests/support/refusal.h"

namespace triptych::checkpoint::published_quantization_test {
namespace {

using published::With;
using Layout = PublishedQuantization::Layout;

PublishedQuantization Taken(const Json& quantization) {
  JsonFields fields({{"quantization_config", quantization}}, "config.json");
  const std::optional<PublishedQuantization> taken = TakePublishedQuantization(fields);
  fields.RefuseLeftOver();
  return taken.value();
}

std::string Refusal(const Json& quantization) {
  return RefusalAfter<LoadError>("config.json: quantization_config", [&] { Taken(quantization); });
}

Json Gptq() {
  return {{"bits", 4},
          {"checkpoint_format", "gptq"},
          {"damp_percent", 0.1},
          {"desc_act", true},
          {"group_size", 128},
          {"model_file_base_name", "model"},
          {"sym", true},
          {"model_name_or_path", nullptr},
          {"quant_method", "gptq"},
          {"static_groups", false},
          {"true_sequential", true}};
}
Json Awq() {
  return {{"bits", 4},
          {"group_size", 128},
          {"modules_to_not_convert", nullptr},
          {"quant_method", "awq"},
          {"version", "gemm"},
          {"zero_point", true}};
}
Json Float8() {
  return {{"activation_scheme", "dynamic"},
          {"fmt", "e4m3"},
          {"quant_method", "fp8"},
          {"weight_block_size", {128, 64}}};
}
Json Compressed() {
  const Json weights = {{"actorder", nullptr},
                        {"block_structure", nullptr},
                        {"dynamic", false},
                        {"group_size", 128},
                        {"num_bits", 4},
                        {"observer", "minmax"},
                        {"observer_kwargs", Json::object()},
                        {"strategy", "group"},
                        {"symmetric", true},
                        {"type", "int"}};
  return {{"config_groups",
           {{"group_0",
             {{"input_activations", nullptr},
              {"output_activations", nullptr},
              {"targets", {"Linear"}},
              {"weights", weights}}}}},
          {"format", "pack-quantized"},
          {"global_compression_ratio", 1.8},
          {"ignore", {"lm_head"}},
          {"kv_cache_scheme", nullptr},
          {"quant_method", "compressed-tensors"},
          {"quantization_status", "compressed"}};
}
Json CompressedWith(const Json& changes, const std::string& format) {
  Json config = Compressed();
  config["format"] = format;
  config["config_groups"]["group_0"]["weights"].update(changes);
  return config;
}

TEST(PublishedQuantizationTest, GptqAndAwq) {
  const PublishedQuantization gptq = Taken(Gptq());
  EXPECT_EQ(gptq.layout, Layout::kGptq);
  EXPECT_EQ(gptq.bits, 4);
  EXPECT_EQ(gptq.added_to_zeros, 1);
  EXPECT_EQ(gptq.columns, 128);
  EXPECT_EQ(gptq.Nearest(), WeightFormat::kInt4);
  const PublishedQuantization rows =
      Taken(With(Gptq(), {{"bits", 8}, {"group_size", -1}, {"checkpoint_format", "gptq_v2"}}));
  EXPECT_EQ(rows.added_to_zeros, 0);
  EXPECT_EQ(rows.columns, std::nullopt);
  EXPECT_EQ(rows.Nearest(), WeightFormat::kInt8);
  const PublishedQuantization awq = Taken(Awq());
  EXPECT_EQ(awq.layout, Layout::kAwq);
  EXPECT_EQ(awq.bits, 4);
  EXPECT_EQ(awq.columns, 128);
}

TEST(PublishedQuantizationTest, Float8) {
  const PublishedQuantization blocks = Taken(Float8());
  EXPECT_EQ(blocks.layout, Layout::kFloat8);
  EXPECT_EQ(blocks.rows, 128);
  EXPECT_EQ(blocks.columns, 64);
  EXPECT_FALSE(blocks.zero_points);
  EXPECT_EQ(blocks.Nearest(), WeightFormat::kInt8);
  const PublishedQuantization whole =
      Taken({{"quant_method", "fp8"}, {"activation_scheme", "static"}, {"ignored_layers", {"x"}}});
  EXPECT_EQ(whole.columns, std::nullopt);
  EXPECT_EQ(Taken({{"quant_method", "fbgemm_fp8"}, {"activation_scale_ub", 1200}}).layout,
            Layout::kFloat8);
}

TEST(PublishedQuantizationTest, CompressedTensors) {
  const PublishedQuantization packed = Taken(Compressed());
  EXPECT_EQ(packed.layout, Layout::kPacked);
  EXPECT_EQ(packed.bits, 4);
  EXPECT_EQ(packed.columns, 128);
  EXPECT_FALSE(packed.zero_points);
  const PublishedQuantization channels = Taken(CompressedWith(
      {{"num_bits", 8}, {"group_size", nullptr}, {"strategy", "channel"}, {"symmetric", false}},
      "int-quantized"));
  EXPECT_EQ(channels.layout, Layout::kIntegers);
  EXPECT_EQ(channels.columns, std::nullopt);
  EXPECT_TRUE(channels.zero_points);
  const PublishedQuantization floats = Taken(CompressedWith({{"num_bits", 8},
                                                             {"group_size", nullptr},
                                                             {"strategy", "block"},
                                                             {"type", "float"},
                                                             {"block_structure", {128, 128}}},
                                                            "float-quantized"));
  EXPECT_EQ(floats.layout, Layout::kFloat8);
  EXPECT_EQ(floats.rows, 128);
  EXPECT_EQ(Taken(CompressedWith(Json::object(), "naive-quantized")).layout, Layout::kIntegers);
  EXPECT_EQ(Taken(CompressedWith({{"num_bits", 8}, {"type", "float"}}, "naive-quantized")).layout,
            Layout::kFloat8);
}

TEST(PublishedQuantizationTest, RefusesWhatItCannotRead) {
  const std::vector<std::pair<Json, std::string>> cases = {
      {"x", ": must hold a JSON object"},
      {Json::object(), ": quant_method is missing"},
      {{{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}},
       ": quant_method is \"bitsandbytes\"; supported: \"gptq\", \"awq\", \"fp8\", "
       "\"fbgemm_fp8\", \"compressed-tensors\""},
      {With(Gptq(), {{"bits", 3}}), ": bits is 3; supported: 4, 8"},
      {With(Gptq(), {{"group_size", 0}}),
       ": group_size is 0; allowed: an integer from 1 to 1048576"},
      {With(Gptq(), {{"checkpoint_format", "marlin"}}),
       ": checkpoint_format is \"marlin\"; supported: \"gptq\", \"gptq_v2\""},
      {With(Gptq(), {{"dynamic", {{"+:x", {{"bits", 8}}}}}}),
       ": dynamic is {\"+:x\":{\"bits\":8}}; supported: rules that begin with \"-:\""},
      {With(Gptq(), {{"rotation", "hadamard"}}),
       ": rotation is not a field that is known (value \"hadamard\"); supported: without it"},
      {With(Awq(), {{"bits", 8}}), ": bits is 8; supported: 4"},
      {With(Awq(), {{"version", "gemv"}}), ": version is \"gemv\"; supported: \"gemm\""},
      {With(Awq(), {{"zero_point", false}}), ": zero_point is false; supported: true"},
      {With(Float8(), {{"fmt", "e5m2"}}), ": fmt is \"e5m2\"; supported: \"e4m3\""},
      {With(Float8(), {{"weight_block_size", {128}}}),
       ": weight_block_size is [128]; allowed: a list of two integers"},
      {With(Float8(), {{"weight_block_size", {0, 128}}}),
       ": weight_block_size is 0; allowed: an integer from 1 to 1048576"},
      {With(Compressed(), {{"format", "marlin-24"}}),
       ": format is \"marlin-24\"; supported: \"pack-quantized\", \"int-quantized\", "
       "\"naive-quantized\", \"float-quantized\""},
      {With(Compressed(), {{"sparsity_config", {{"format", "sparse-24-bitmask"}}}}),
       ": sparsity_config is {\"format\":\"sparse-24-bitmask\"}; supported: without it"},
      {With(Compressed(), {{"config_groups", Json::object()}}),
       ": config_groups is {}; allowed: an object of groups of modules"},
      {CompressedWith({{"num_bits", 2}}, "pack-quantized"),
       ": config_groups.group_0.weights: num_bits is 2; supported: 4, 8"},
      {CompressedWith({{"type", "float"}}, "pack-quantized"),
       ": config_groups.group_0.weights: type is \"float\"; supported: \"int\""},
      {CompressedWith({{"type", "float"}}, "naive-quantized"),
       ": config_groups.group_0.weights: num_bits is 4; supported: 8 with type \"float\""},
      {CompressedWith({{"strategy", "tensor_group"}}, "pack-quantized"),
       ": config_groups.group_0.weights: strategy is \"tensor_group\"; supported: \"tensor\", "
       "\"channel\", \"group\", \"block\""}};
  for (const auto& [quantization, refusal] : cases) EXPECT_EQ(Refusal(quantization), refusal);
  Json mixed = Compressed();
  mixed["config_groups"]["group_1"] = mixed["config_groups"]["group_0"];
  EXPECT_EQ(Refusal(mixed), "accepted");
  mixed["config_groups"]["group_1"]["weights"]["num_bits"] = 8;
  EXPECT_THAT(Refusal(mixed), testing::HasSubstr(": config_groups.group_1.weights is {"));
  mixed["config_groups"]["group_1"] = {{"targets", {"x"}}};
  EXPECT_THAT(Refusal(mixed), testing::HasSubstr(": config_groups.group_1 is {"));
}

TEST(PublishedQuantizationTest, FamiliesServeTheNearestFormats) {
  const auto formats = [](const Json& quantization) {
    const Json config = With(published::SmolLm2(), {{"quantization_config", quantization}});
    return ParseModelConfig(config.dump(), "config.json").served_formats;
  };
  EXPECT_EQ(formats(nullptr), std::nullopt);
  EXPECT_EQ(formats(Gptq()), WeightFormats(WeightFormat::kInt4, WeightFormat::kBFloat16));
  EXPECT_EQ(formats(Float8()), WeightFormats(WeightFormat::kInt8, WeightFormat::kBFloat16));
  // GPT-2's matrices are stored with rows of inputs.
  const Json gpt2 = With(published::Gpt2(), {{"quantization_config", Gptq()}});
  EXPECT_THAT(RefusalOf<LoadError>([&] { ParseModelConfig(gpt2.dump(), "config.json"); }),
              testing::HasSubstr("quantization_config is not a field that is known"));
}

}  // namespace
}  // namespace triptych::checkpoint::published_quantization_test
