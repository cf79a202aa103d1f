// Checkpoints in the published form, as the engine loads and serves them, against the families'
// own definitions.
#include "tests/support/published_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "engine/attention/algebra.h"
#include "engine/base/error.h"
#include "engine/checkpoint/config_file.h"
#include "engine/decoder/conversion.h"
#include "engine/decoder/decoder.h"
#include "engine/decoder/weights.h"
#include "tests/support/published_checkpoints.h"
#include "tests/support/random_model.h"
#include "tests/support/serving.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"

namespace triptych {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// Products and sums in another order, in float64.
constexpr double kRounding64 = 1e-11;
// The same in float32, of logits of about 1 and a few layers.
constexpr double kRounding32 = 5e-5;

class PublishedModelTest : public ::testing::TestWithParam<published::NamedConfig> {
 protected:
  static constexpr int64_t kLength = 24;

  void SetUp() override {
    config_ = GetParam().config;
    tensors_ = published::RandomTensors(config_, 1);
    published::WriteCheckpoint(directory_.path(), config_, tensors_);
    const int64_t vocab = config_.at("vocab_size");
    for (int64_t i = 0; i < kLength; ++i) ids_.push_back((7 * i * i + 3 * i + 1) % vocab);
  }

  Checkpoint Load() const { return LoadCheckpoint(directory_.path(), TensorFormat::kFloat32); }
  at::Tensor Expected() const { return published::Logits(config_, tensors_, ids_); }
  at::Tensor Forward(const Checkpoint& model) const {
    return Decoder(model.config, model.weights, ComputeType::kFloat64)
        .Forward(ToTensor(ids_).unsqueeze(0))[0];
  }
  // The sequence in three steps over a paged cache, all but its last tokens a prompt.
  at::Tensor Serve(const Checkpoint& model, ComputeType compute,
                   std::optional<int64_t> expand_from) const {
    StepRunner runner({.config = model.config,
                       .weights = model.weights,
                       .compute = compute,
                       .block_positions = 5,
                       .expand_from = expand_from},
                      1, /*prompt=*/kLength - 3);
    const auto part = [&](int64_t begin, int64_t end) {
      return std::vector<int64_t>(ids_.begin() + begin, ids_.begin() + end);
    };
    return at::cat({runner.Step({{0, part(0, 11)}}), runner.Step({{0, part(11, kLength - 1)}}),
                    runner.Step({{0, part(kLength - 1, kLength)}})});
  }

  TempDir directory_;
  Json config_;
  published::Tensors tensors_;
  std::vector<int64_t> ids_;
};

TEST_P(PublishedModelTest, IsWhatItsFamilyDefines) {
  const at::Tensor expected = Expected();
  const Checkpoint model = Load();
  EXPECT_LE(RelativeError(Forward(model), expected), kRounding64);
  EXPECT_LE(RelativeError(Serve(model, ComputeType::kFloat64, kNeverExpand), expected),
            kRounding64);
  EXPECT_LE(RelativeError(Serve(model, ComputeType::kFloat32, kNeverExpand), expected),
            kRounding32);
  if (model.config.attention == AttentionKind::kMla) {
    EXPECT_LE(RelativeError(Serve(model, ComputeType::kFloat32, 4), expected), kRounding32);
  }
}

TEST_P(PublishedModelTest, IsTheSameModelInTriptychsOwnForm) {
  const Checkpoint model = Load();
  const TempDir own;
  SaveCheckpoint(own.path() / "model", model.config, model.weights);
  const Checkpoint again = LoadCheckpoint(own.path() / "model", TensorFormat::kFloat32);
  EXPECT_EQ(ToJson(again.config), ToJson(model.config));
  EXPECT_LE(RelativeError(Forward(again), Expected()), kRounding64);
}

// All of keys and values in one latent, and of rotated keys beside it: biases, norms and scales
// stay what they were. GPT-2, whose positions rotate nothing, has a latent of D for a row of 2 D.
TEST_P(PublishedModelTest, ConvertsToLatentsWithoutLoss) {
  Checkpoint model = Load();
  if (model.config.attention == AttentionKind::kMla || model.config.qk_norm) return;
  model.weights = Cast(model.weights, at::kDouble);
  const Checkpoint mla = Convert(model, {.attention = AttentionKind::kMla}, "model");
  if (config_.at("model_type") == "gpt2") {
    EXPECT_THAT(mla.config.kv_lora_rank, Each(model.config.hidden_size));
    EXPECT_EQ(mla.config.qk_rope_head_dim, 0);
    EXPECT_EQ(2 * ElementsPerPosition(mla.config), ElementsPerPosition(model.config));
  }
  const at::Tensor expected = Expected();
  EXPECT_LE(RelativeError(Forward(mla), expected), kRounding64);
  EXPECT_LE(RelativeError(Serve(mla, ComputeType::kFloat64, kNeverExpand), expected), kRounding64);
  // As it is stored, loaded and served.
  const TempDir own;
  SaveCheckpoint(own.path() / "model", mla.config, mla.weights);
  const Checkpoint again = LoadCheckpoint(own.path() / "model", TensorFormat::kFloat32);
  EXPECT_EQ(ToJson(again.config), ToJson(mla.config));
  for (const std::optional<int64_t> expand_from : {kNeverExpand, int64_t{4}}) {
    EXPECT_LE(RelativeError(Serve(again, ComputeType::kFloat32, expand_from), expected),
              kRounding32);
  }
}

TEST_P(PublishedModelTest, WhatOldFilesHoldBesideIsLeftOut) {
  published::AddBuffers(config_, tensors_);
  published::WriteCheckpoint(directory_.path(), config_, tensors_);
  EXPECT_LE(RelativeError(Forward(Load()), Expected()), kRounding64);
  if (config_.at("model_type") != "gpt2") return;
  published::WriteCheckpoint(directory_.path(), config_, published::WithPrefix(tensors_));
  EXPECT_LE(RelativeError(Forward(Load()), Expected()), kRounding64);
}

TEST_P(PublishedModelTest, ItsCountsAreThoseOfItsTensors) {
  int64_t elements = 0;
  for (const auto& [name, tensor] : tensors_) elements += tensor.numel();
  EXPECT_EQ(ParameterCount(Load().config), elements);
}

TEST_P(PublishedModelTest, FieldsThatAreNotKnownAreRefused) {
  config_["some_new_scale"] = 2;
  published::WriteCheckpoint(directory_.path(), config_, tensors_);
  try {
    Load();
    FAIL();
  } catch (const LoadError& e) {
    EXPECT_THAT(e.what(), HasSubstr("config.json: some_new_scale is not a field that is known"));
  }
}

INSTANTIATE_TEST_SUITE_P(EveryFamily, PublishedModelTest,
                         ::testing::ValuesIn(published::EveryFamily()),
                         [](const auto& named) { return named.param.name; });

}  // namespace
}  // namespace triptych
