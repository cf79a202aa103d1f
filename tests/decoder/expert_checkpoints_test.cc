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
#include "engine/checkpoint/tensors/safetensors.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "tests/support/published_checkpoints.h"
#include "tests/support/published_configs.h"
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
  EXPECT_EQ(Refusal("DeepSeek3Groups",
                    [&](auto& tensors) {
                      tensors[router][2][3] = std::numeric_limits<float>::quiet_NaN();
                    }),
            "tensor " + router +
                " holds numbers that are not finite in float32; allowed: finite "
                "ones");
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

// DeepSeek-V3's files: E4M3 with a scale for each block, of the matrices that `quantized` says.
class Float8Test : public ExpertCheckpointsTest {
 protected:
  void Write(const std::function<bool(const std::string&)>& quantized) {
    constexpr int64_t kRows = 8, kColumns = 16;
    Json config = ConfigNamed("DeepSeek3Groups");
    config["torch_dtype"] = "bfloat16";
    published::Tensors tensors = published::RandomTensors(config, 1, at::kBFloat16);
    std::mt19937 random(5);
    std::map<std::string, std::string> data;
    std::vector<checkpoint::SafetensorsTensor> stored;
    const auto add = [&](const std::string& name, const char* dtype, std::vector<int64_t> shape,
                         std::string bytes) {
      data[name] = std::move(bytes);
      stored.push_back({name, dtype, std::move(shape), std::as_bytes(std::span(data[name]))});
    };
    const auto bytes_of = [](const at::Tensor& tensor) {
      return std::string(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
    };
    for (auto& [name, tensor] : tensors) {
      if (!name.ends_with("_proj.weight") || !quantized(name)) {
        add(name, "BF16", tensor.sizes().vec(), bytes_of(tensor));
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
      add(name, "F8_E4M3", {rows, columns}, integers);
      add(name + "_scale_inv", "F32", scales.sizes().vec(), bytes_of(scales));
    }
    published::WriteCheckpoint(plain_.path(), config, tensors);
    config["quantization_config"] = {{"activation_scheme", "dynamic"},
                                     {"fmt", "e4m3"},
                                     {"quant_method", "fp8"},
                                     {"weight_block_size", {kRows, kColumns}}};
    WriteFile(directory_.path() / "config.json", config.dump());
    checkpoint::WriteSafetensors(directory_.path() / "model.safetensors", stored);
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

  const TempDir plain_;
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
