#include "engine/tools/input_moments.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/support/held_out.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"
#include "tests/support/tokenizer.h"

namespace triptych::tools::input_moments_test {
namespace {

// With nothing added to the residual stream, every layer reads its norm of the embeddings. A text
// of one context has only one window.
TEST(InputCovariancesTest, AreThoseOfTheInputsOfAttention) {
  for (const AttentionKind kind : {AttentionKind::kMha, AttentionKind::kGqa}) {
    const ModelConfig config = SmallModel(kind);
    Checkpoint model{.config = config, .weights = Cast(RandomWeights(config, 1), at::kFloat)};
    for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
      model.weights.at(LayerPrefix(layer) + "self_attn.o_proj.weight").zero_();
      model.weights.at(LayerPrefix(layer) + "mlp.down_proj.weight").zero_();
    }
    std::mt19937_64 generator(1);
    std::string text;
    std::vector<int64_t> ids = {kBeginToken};
    for (int64_t i = 0; i < config.max_position_embeddings; ++i) {
      text += static_cast<char>('a' + generator() % 9);
      ids.push_back(text.back());
    }
    ids.pop_back();
    const TempDir dir;
    WriteFile(dir.path() / "text.txt", text);
    const std::vector<at::Tensor> covariances =
        InputCovariances(model, TestCorpus(dir.path() / "text.txt", /*held_out=*/0));
    const Weights exact = Cast(model.weights, at::kDouble);
    const at::Tensor x = exact.at("model.embed_tokens.weight").index_select(0, ToTensor(ids)) +
                         exact.at("model.embed_positions.weight");
    const at::Tensor normed = x / (x.square().mean(1, /*keepdim=*/true) + config.norm_eps).sqrt();
    ASSERT_EQ(static_cast<int64_t>(covariances.size()), config.num_hidden_layers);
    for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
      const at::Tensor y =
          normed * exact.at(LayerPrefix(layer) + "input_layernorm.weight");  // [L, D]
      // Norms are computed in float32, their products in float64.
      EXPECT_LE(RelativeError(covariances[layer], at::mm(y.t(), y) / y.size(0)), 1e-6);
    }
  }
}

// A text may be shorter than a published model's context.
TEST(InputCovariancesTest, ALongContextNeedsAShorterText) {
  ModelConfig config = SmallModel(AttentionKind::kGqa);
  config.position_embedding = PositionEmbedding::kRope;
  config.max_position_embeddings = 1 << 20;
  const Checkpoint model{.config = config, .weights = Cast(RandomWeights(config, 1), at::kFloat)};
  const TempDir dir;
  WriteFile(dir.path() / "text.txt", std::string(600, 'x'));
  const Corpus corpus = TestCorpus(dir.path() / "text.txt", /*held_out=*/0);
  EXPECT_EQ(static_cast<int64_t>(InputCovariances(model, corpus).size()), config.num_hidden_layers);
}

}  // namespace
}  // namespace triptych::tools::input_moments_test
