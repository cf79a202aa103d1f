// Tests of the shipped models' greedy text on a GPU, compared with the CPU backend's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "engine/backend/cuda/cuda_model.h"
#include "tests/backend/cuda/cuda_test.h"
#include "tests/backend/cuda/model_checks.h"
#include "tests/backend/cuda/references.h"

namespace triptych::greedy_text_test {
namespace {

class GreedyTextTest : public CudaTest, public testing::WithParamInterface<const char*> {};

// Both round the inputs of products to bfloat16, at different points: at the first difference, the
// exact logits of the two tokens must be close.
TEST_P(GreedyTextTest, IsTheCpuBackendsOrDiffersAtANearTie) {
  const Reference& reference = FindReference(GetParam());
  const ReferenceSequence& expected = reference.sequences.at(0);
  const std::unique_ptr<CudaModel> model = MakeModel(reference);
  std::vector<int32_t> table(model->info().blocks);
  std::iota(table.begin(), table.end(), 0);
  const int64_t vocab = reference.config.vocab_size;
  int64_t start = 0;
  for (int64_t end = expected.prompt; end < expected.length(); ++end) {
    StepInput step;
    step.ids.assign(expected.ids.begin() + start, expected.ids.begin() + end);
    step.sequences = {
        {.blocks = table.data(), .start = start, .count = end - start, .prompt = expected.prompt}};
    step.likely_rows = {end - start - 1};
    step.likely_scales = {1};
    model->Step(step);
    start = end;
    const LikelyTokens& likely = model->likely()[0];
    const auto most = std::max_element(likely.logits.begin(), likely.logits.end());
    const int32_t token = likely.tokens[most - likely.logits.begin()];
    if (token == expected.ids[end]) continue;
    const float* const exact = expected.logits.data() + (end - 1) * vocab;
    EXPECT_NEAR(exact[token], exact[expected.ids[end]], 0.1) << "token " << end - expected.prompt;
    return;
  }
}

INSTANTIATE_TEST_SUITE_P(ShippedModels, GreedyTextTest, testing::ValuesIn(kShippedNames),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace triptych::greedy_text_test
