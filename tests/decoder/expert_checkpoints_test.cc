// Published directories with experts: quantized ones, and those whose tensors do not fit.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "tests/support/published_checkpoints.h"
#include "tests/support/published_configs.h"
#include "tests/support/quantized_files.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace triptych::expert_checkpoints_test {
namespace {

using published::With;
using ::testing::ElementsAre;

Json ConfigNamed(const std::string& name) {
  for (const published::NamedConfig& named : published::EveryFamily()) {
    if (named.name == name) return named.config;
  }
  throw std::out_of_range(name);
}

class ExpertCheckpointsTest : public ::testing::Test {
 protected:
  // Without the file's name, which it begins with.
  std::string Refusal(const std::string& name,
                      const std::function<void(published::Tensors&)>& change) const {
    const Json config = ConfigNamed(name);
    published::Tensors tensors = published::RandomTensors(config, 1);
    change(tensors);
    published::WriteCheckpoint(directory_.path(), config, tensors, /*shards=*/2);
    return RefusalAfter<LoadError>(
        (directory_.path() / "model.safetensors.index.json").string() + ": ",
        [&] { LoadCheckpoint(directory_.path(), TensorFormat::kFloat32); });
  }

  const TempDir directory_;
};

TEST_F(ExpertCheckpointsTest, RefusesTensorsThatDoNotFit) {
  const std::string expert = "model.layers.2.mlp.experts.4.up_proj.weight";
  EXPECT_EQ(Refusal("DeepSeek3Groups", [&](auto& tensors) { tensors.erase(expert); }),
            "tensor " + expert + " is missing");
  EXPECT_EQ(
      Refusal("DeepSeek3Groups",
              [&](auto& tensors) { tensors[expert] = tensors[expert].slice(0, 1).contiguous(); }),
      "tensor " + expert + " has shape [10, 24]; the config needs [11, 24]");
  const std::string more = "model.layers.2.mlp.experts.6.up_proj.weight";
  EXPECT_EQ(Refusal("DeepSeek3Groups", [&](auto& tensors) { tensors[more] = tensors[expert]; }),
            "tensor " + more + " does not belong to a model with this config");
  const std::string bias = "model.layers.1.mlp.gate.e_score_correction_bias";
  EXPECT_EQ(Refusal("DeepSeek3Groups", [&](auto& tensors) { tensors[bias] = at::zeros({5}); }),
            "tensor " + bias + " has shape [5]; the config needs [6]");
  const std::string router = "model.layers.1.mlp.gate.weight";
  const std::string not_finite =
      " holds numbers that are not finite in float32; allowed: finite ones";
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Refusal("DeepSeek3Groups", [&](auto& tensors) { tensors[router][2][3] = kNan; }),
            "tensor " + router + not_finite);
  EXPECT_EQ(Refusal("DeepSeek3Groups", [&](auto& tensors) { tensors[bias][5] = kNan; }),
            "tensor " + bias + not_finite);
  EXPECT_EQ(Refusal("DeepSeek3Groups",
                    [&](auto& tensors) { tensors[router] = tensors[router].t().contiguous(); }),
            "tensor " + router + " has shape [24, 6]; the config needs [6, 24]");
  const std::string joined = "model.layers.0.block_sparse_moe.input_linear.weight";
  EXPECT_EQ(
      Refusal("GraniteMoe",
              [&](auto& tensors) { tensors[joined] = tensors[joined].slice(0, 1).contiguous(); }),
      "tensor " + joined + " has shape [4, 86, 24]; the config needs [5, 86, 24]");
  const std::string theirs = "model.layers.1.block_sparse_moe.experts.3.w2.weight";
  EXPECT_EQ(Refusal("Mixtral", [&](auto& tensors) { tensors.erase(theirs); }),
            "tensor " + theirs + " is missing");
}

TEST_F(ExpertCheckpointsTest, LayersThatPredictFurtherTokensAreNotUsed) {
  const Json config = ConfigNamed("DeepSeek3Groups");
  published::Tensors tensors = published::RandomTensors(config, 1);
  for (const char* name : {"eh_proj.weight", "enorm.weight", "mlp.experts.0.up_proj.weight"}) {
    tensors["model.layers.3." + std::string(name)] = at::ones({2, 2});
  }
  published::WriteCheckpoint(directory_.path(), config, tensors);
  EXPECT_THAT(checkpoint::OpenCheckpoint(directory_.path()).warnings,
              ElementsAre("1 layers from model.layers.3.* on predict further tokens and are not "
                          "used"));
  LoadCheckpoint(directory_.path(), TensorFormat::kFloat32);
}

float FromFloat8(int bits) {
  const int exponent = bits >> 3 & 0xf, fraction = bits & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(1 + fraction / 8.0, exponent - 7);
  return static_cast<float>(bits & 0x80 ? -magnitude : magnitude);
}

std::string BytesOf(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()};
}

// A directory with quantized matrices, and one with their numbers.
class QuantizedExpertsTest : public ExpertCheckpointsTest {
 protected:
  void Write(Json config, const Json& quantization, const published::StoredTensors& stored,
             const published::Tensors& numbers) {
    published::WriteCheckpoint(plain_.path(), config, numbers);
    config["quantization_config"] = quantization;
    WriteFile(directory_.path() / "config.json", config.dump());
    published::Write(directory_.path() / "model.safetensors", stored);
  }
  void CheckWeights() const {
    const Checkpoint expected = LoadCheckpoint(plain_.path(), TensorFormat::kFloat32);
    const Checkpoint loaded = LoadCheckpoint(directory_.path(), TensorFormat::kFloat32);
    ASSERT_EQ(loaded.weights.size(), expected.weights.size());
    for (const auto& [name, tensor] : expected.weights) {
      EXPECT_TRUE(at::equal(loaded.weights.at(name), tensor)) << name;
    }
  }
  std::optional<WeightFormats> Formats() const {
    const auto formats = checkpoint::OpenCheckpoint(directory_.path()).config.served_formats;
    EXPECT_EQ(checkpoint::ReadConfig(directory_.path()).served_formats, formats);
    return formats;
  }

 private:
  const TempDir plain_;
};

// Families with names of their own for experts, whose widths are multiples of a word's integers.
// Routers and the gates of shared experts stay numbers.
TEST_F(QuantizedExpertsTest, FourBitsOfEveryProgram) {
  constexpr int64_t kGroup = 16;
  using Stored =
      published::StoredTensors (*)(const std::string&, const published::QuantizedMatrix&);
  struct Program {
    Json config;
    Stored stored;
  };
  const std::vector<Program> programs = {
      {Json::parse(R"({"bits": 4, "checkpoint_format": "gptq", "desc_act": false, "group_size": 16,
                       "dynamic": {"-:.*mlp.gate$": {}, "-:.*shared_expert_gate.*": {}},
                       "lm_head": false, "quant_method": "gptq", "sym": true})"),
       [](const std::string& module, const published::QuantizedMatrix& matrix) {
         return published::Gptq(module, matrix, /*v2=*/false);
       }},
      {Json::parse(R"({"bits": 4, "group_size": 16, "modules_to_not_convert": ["gate"],
                       "quant_method": "awq", "version": "gemm", "zero_point": true})"),
       published::Awq},
      {Json::parse(R"({"config_groups": {"group_0": {"targets": ["Linear"], "weights":
                         {"group_size": 16, "num_bits": 4, "strategy": "group",
                          "symmetric": false, "type": "int"}}},
                       "format": "pack-quantized", "ignore": ["lm_head", "re:.*gate$"],
                       "quant_method": "compressed-tensors"})"),
       published::Compressed}};
  for (const std::string name : {"DeepSeek2Experts", "Mixtral", "Qwen2Moe", "Qwen3Moe"}) {
    Json config =
        With(ConfigNamed(name),
             {{"hidden_size", 32}, {"intermediate_size", 48}, {"torch_dtype", "bfloat16"}});
    if (config.contains("kv_lora_rank")) {
      config = With(config, {{"kv_lora_rank", 16},
                             {"qk_nope_head_dim", 8},
                             {"qk_rope_head_dim", 8},
                             {"v_head_dim", 16}});
    } else {
      config["head_dim"] = 8;
    }
    for (const char* inner : {"moe_intermediate_size", "shared_expert_intermediate_size"}) {
      if (config.contains(inner)) config[inner] = 16;
    }
    for (const Program& program : programs) {
      SCOPED_TRACE(name + " " + program.config["quant_method"].get<std::string>());
      published::Tensors numbers = published::RandomTensors(config, 1, at::kBFloat16);
      published::StoredTensors stored;
      unsigned seed = 0;
      for (auto& [tensor, number] : numbers) {
        const std::string module = tensor.substr(0, tensor.size() - std::string("weight").size());
        if (number.dim() != 2 || tensor.find("layers.") == tensor.npos ||
            module.ends_with("gate.")) {
          stored[tensor] = {"BF16", number.sizes().vec(), BytesOf(number)};
          continue;
        }
        const int64_t outputs = number.size(0), inputs = number.size(1);
        const published::QuantizedMatrix matrix(4, outputs, inputs, inputs / kGroup, ++seed);
        stored.merge(program.stored(module, matrix));
        const std::vector<float> expected = matrix.Numbers();
        number = at::tensor(expected).view({outputs, inputs});
      }
      Write(config, program.config, stored, numbers);
      CheckWeights();
      EXPECT_EQ(Formats(), WeightFormats(WeightFormat::kInt4, WeightFormat::kBFloat16));
    }
  }
}

// DeepSeek-V3's files: E4M3 with a scale for each block, of the matrices that `quantized` says.
class Float8Test : public QuantizedExpertsTest {
 protected:
  void Write(const std::function<bool(const std::string&)>& quantized) {
    constexpr int64_t kRows = 8, kColumns = 16;
    Json config = ConfigNamed("DeepSeek3Groups");
    config["torch_dtype"] = "bfloat16";
    published::Tensors tensors = published::RandomTensors(config, 1, at::kBFloat16);
    std::mt19937 random(5);
    published::StoredTensors stored;
    for (auto& [name, tensor] : tensors) {
      if (!name.ends_with("_proj.weight") || !quantized(name)) {
        stored[name] = {"BF16", tensor.sizes().vec(), BytesOf(tensor)};
        continue;
      }
      const int64_t rows = tensor.size(0), columns = tensor.size(1);
      const at::Tensor scales =
          at::rand({(rows + kRows - 1) / kRows, (columns + kColumns - 1) / kColumns}) / 64;
      std::string integers(static_cast<size_t>(rows * columns), '\0');
      tensor = at::empty({rows, columns});
      for (int64_t i = 0; i < rows * columns; ++i) {
        const auto bits = static_cast<int>(random() % 2 * 0x80 + random() % 0x48);
        integers[i] = static_cast<char>(bits);
        tensor[i / columns][i % columns] =
            FromFloat8(bits) * scales[i / columns / kRows][i % columns / kColumns].item<float>();
      }
      stored[name] = {"F8_E4M3", {rows, columns}, integers};
      stored[name + "_scale_inv"] = {"F32", scales.sizes().vec(), BytesOf(scales)};
    }
    QuantizedExpertsTest::Write(config,
                                {{"activation_scheme", "dynamic"},
                                 {"fmt", "e4m3"},
                                 {"quant_method", "fp8"},
                                 {"weight_block_size", {kRows, kColumns}}},
                                stored, tensors);
  }
};

TEST_F(Float8Test, BlocksOfEveryMatrix) {
  Write([](const std::string&) { return true; });
  CheckWeights();
  EXPECT_EQ(Formats(), WeightFormats(WeightFormat::kInt8, WeightFormat::kBFloat16));
}

TEST_F(Float8Test, ExpertsAlone) {
  Write([](const std::string& name) { return name.find(".experts.") != name.npos; });
  CheckWeights();
  EXPECT_EQ(Formats(),
            WeightFormats(WeightFormat::kBFloat16, WeightFormat::kBFloat16, WeightFormat::kInt8));
}

TEST_F(Float8Test, AllExceptExperts) {
  Write([](const std::string& name) { return name.find(".experts.") == name.npos; });
  CheckWeights();
  EXPECT_EQ(Formats(),
            WeightFormats(WeightFormat::kInt8, WeightFormat::kBFloat16, WeightFormat::kBFloat16));
}

}  // namespace
}  // namespace triptych::expert_checkpoints_test
