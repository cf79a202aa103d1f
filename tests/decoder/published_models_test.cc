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
#include "engine/decoder/decoder.h"
#include "engine/decoder/weights.h"
#include "tests/support/published_checkpoints.h"
#include "tests/support/serving.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"

namespace triptych {
namespace {

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

TEST_P(PublishedModelTest, WhatOldFilesHoldBesideIsLeftOut) {
  published::AddBuffers(config_, tensors_);
  published::WriteCheckpoint(directory_.path(), config_, tensors_);
  EXPECT_LE(RelativeError(Forward(Load()), Expected()), kRounding64);
  if (config_.at("model_type") != "gpt2") return;
  published::WriteCheckpoint(directory_.path(), config_, published::WithPrefix(tensors_));
  EXPECT_LE(RelativeError(Forward(Load()), Expected()), kRounding64);
}

// The config rules: it is not read, whatever it is.
TEST_P(PublishedModelTest, AHeadBesideATiedOneIsLeftOut) {
  if (!Load().config.tie_word_embeddings) return;
  const int64_t width = Load().config.hidden_size, vocab = config_.at("vocab_size");
  const at::Tensor expected = Expected();
  for (const at::Tensor& head :
       {at::full({vocab, width}, 3, at::kFloat), at::zeros({2, 3}, at::kFloat)}) {
    published::Tensors more = tensors_;
    more["lm_head.weight"] = head;
    published::WriteCheckpoint(directory_.path(), config_, more);
    EXPECT_LE(RelativeError(Forward(Load()), expected), kRounding64);
  }
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
