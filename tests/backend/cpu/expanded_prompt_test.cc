#include "engine/backend/cpu/expanded_prompt.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/random_model.h"
#include "tests/support/serving.h"
#include "tests/support/tensors.h"

namespace triptych::cpu::expanded_prompt_test {
namespace {

constexpr int64_t kPrompt = 90, kExpandFrom = 13;

// A model whose latents are wide enough for expanded attention to be faster; with decoupled keys if
// d_rope is not 0.
ModelConfig ExpandingModel(int64_t d_rope = 0) {
  ModelConfig config = SmallModel(AttentionKind::kMla);
  config.kv_lora_rank.assign(config.num_hidden_layers, 40);
  config.max_position_embeddings = 128;
  if (d_rope > 0) {
    config.position_embedding = PositionEmbedding::kRope;
    config.qk_rope_head_dim = d_rope;
  }
  return config;
}

TEST(ExpandedPrompt, KeptRowsAreCountedAndBounded) {
  int64_t held = 0;
  EXPECT_EQ(ExpandedPrompt::Make(100, {0, 0}, 1 << 20, held), nullptr);
  {
    // 112 positions of 8 and 24 floats.
    const auto first = ExpandedPrompt::Make(100, {8, 0, 24}, 20000, held);
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(held, 112 * 32 * 4);
    EXPECT_EQ(first->layer(0).cache.row_width, 8);
    EXPECT_EQ(first->layer(2).cache.row_width, 24);
    EXPECT_EQ(ExpandedPrompt::Make(100, {8, 0, 24}, 20000, held), nullptr);
    EXPECT_NE(ExpandedPrompt::Make(10, {8, 0, 24}, 20000, held), nullptr);
    EXPECT_EQ(held, 112 * 32 * 4);
  }
  EXPECT_EQ(held, 0);
  EXPECT_NE(ExpandedPrompt::Make(100, {8, 0, 24}, 112 * 32 * 4, held), nullptr);
  EXPECT_EQ(ExpandedPrompt::Make(100, {8, 0, 24}, 112 * 32 * 4 - 1, held), nullptr);
  EXPECT_EQ(held, 0);
}

TEST(ExpandedPrompt, AModelKeepsFourContextsAndOnlyExpandedRows) {
  ModelConfig config = ExpandingModel();
  EXPECT_EQ(MostScratchBytes(config), 4 * 128 * config.num_hidden_layers *
                                          config.num_attention_heads * 2 * config.head_dim * 4);
  config.max_position_embeddings = 1 << 30;
  EXPECT_EQ(MostScratchBytes(config), int64_t{256} << 20);

  config = ExpandingModel();
  const Weights weights = RandomWeights(config, 1);
  StepRunner runner({.config = config, .weights = weights, .expand_from = kExpandFrom}, 1, kPrompt);
  EXPECT_EQ(runner.model().MakePromptScratch(kExpandFrom), nullptr);
  std::vector<std::unique_ptr<PromptScratch>> kept;
  for (int i = 0; i < 4; ++i) {
    kept.push_back(runner.model().MakePromptScratch(128));
    EXPECT_NE(kept.back(), nullptr);
  }
  EXPECT_EQ(runner.model().MakePromptScratch(kExpandFrom + 1), nullptr);
  kept.pop_back();
  EXPECT_NE(runner.model().MakePromptScratch(kExpandFrom + 1), nullptr);

  for (const auto& [name, other] : EachKind()) {
    if (other.attention == AttentionKind::kMla) continue;
    const Weights of_other = RandomWeights(other, 1);
    StepRunner grouped({.config = other, .weights = of_other}, 1, kPrompt);
    EXPECT_EQ(grouped.model().MakePromptScratch(1000), nullptr) << name;
  }
}

// For any chunks of the prompt, after steps that missed the scratch memory, and for repeated steps.
TEST(ExpandedPrompt, LogitsAreTheSameBitsWithAndWithout) {
  struct Cut {
    int64_t end;
    bool keeps = true;
  };
  std::vector<int64_t> ids(kPrompt);
  for (int64_t i = 0; i < kPrompt; ++i) ids[i] = (i * 37) % 256;
  for (const auto& [d_rope, format] :
       std::vector<std::pair<int64_t, CacheFormat>>{{0, CacheFormat::kFloat32},
                                                    {6, CacheFormat::kBFloat16},
                                                    {6, CacheFormat::kInt8},
                                                    {6, CacheFormat::kInt4}}) {
    const ModelConfig config = ExpandingModel(d_rope);
    const Weights weights = RandomWeights(config, 1);
    const Served served{
        .config = config, .weights = weights, .cache_format = format, .expand_from = kExpandFrom};
    StepRunner whole(served, 1, kPrompt);
    const at::Tensor expected = whole.Step({{0, ids}});
    for (const std::vector<Cut>& cuts :
         std::vector<std::vector<Cut>>{{{5}, {20}, {21}, {37}, {64}, {90}},
                                       {{12}, {13}, {14}, {90}},
                                       {{30}, {41, false}, {56, false}, {57}, {90}}}) {
      // Two concurrent prompts, one of them with scratch memory.
      StepRunner cut(served, 2, kPrompt);
      const std::unique_ptr<PromptScratch> scratch = cut.model().MakePromptScratch(kPrompt);
      ASSERT_NE(scratch, nullptr);
      const auto expect_length = [&](int64_t length) {
        for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
          EXPECT_EQ(dynamic_cast<ExpandedPrompt&>(*scratch).layer(layer).length, length);
        }
      };
      int64_t begin = 0;
      for (const auto& [end, keeps] : cuts) {
        const int64_t count = end - begin;
        const std::vector<int64_t> chunk(ids.begin() + begin, ids.begin() + end);
        if (keeps) {
          // Other tokens first.
          cut.Step({{0, std::vector<int64_t>(count, 7), scratch.get()}});
          cut.MoveBack(0, count);
        }
        const at::Tensor logits =
            cut.Step({{0, chunk, keeps ? scratch.get() : nullptr}, {1, chunk}});
        for (const int64_t first : {int64_t{0}, count}) {
          EXPECT_TRUE(at::equal(logits.narrow(0, first, count), expected.narrow(0, begin, count)))
              << begin << " to " << end << ", row " << first;
        }
        if (keeps) expect_length(end > kExpandFrom ? end : 0);
        begin = end;
      }
    }
  }
}

}  // namespace
}  // namespace triptych::cpu::expanded_prompt_test
