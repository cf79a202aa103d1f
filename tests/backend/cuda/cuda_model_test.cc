#include "engine/backend/cuda/cuda_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend/cuda/cuda_backend.h"
#include "engine/base/error.h"
#include "tests/backend/cuda/cuda_test.h"
#include "tests/backend/cuda/model_checks.h"
#include "tests/backend/cuda/references.h"
#include "tests/backend/cuda/sequence_runner.h"
#include "tests/support/likely_tokens.h"

namespace triptych::cuda_model_test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::EndsWith;
using testing::HasSubstr;
using testing::ThrowsMessage;

// --- Every model

class CudaModelTest : public CudaTest, public testing::WithParamInterface<const char*> {
 protected:
  const Reference& reference() const { return FindReference(GetParam()); }
};

TEST_P(CudaModelTest, LogitsAreCloseToFloat64) {
  const std::unique_ptr<CudaModel> model = MakeModel(reference());
  ExpectLogitsCloseToFloat64(*model, SequencesOf(reference()));
}

TEST_P(CudaModelTest, LogitsAreTheSameBitsInEveryBatchAndChunking) {
  const std::unique_ptr<CudaModel> model = MakeModel(reference());
  ExpectSameBitsInEveryBatchAndChunking(*model, reference());
}

INSTANTIATE_TEST_SUITE_P(AllModels, CudaModelTest, testing::ValuesIn(kReferenceNames),
                         [](const auto& test) { return std::string(test.param); });

// --- Loading

class CudaModelLoadTest : public CudaTest {
 protected:
  static std::unique_ptr<ModelBackend> Load(const Reference& reference,
                                            const BackendOptions& options, int device = 0) {
    HeldCudaWeights weights = reference.weights;
    return MakeCudaModel(reference.config, weights, options, device, {});
  }
};

TEST_F(CudaModelLoadTest, TwoModelsOfTheSameWeightsGiveTheSameBits) {
  const Reference& reference = FindReference("MlaNarrow");
  const std::vector<ReferenceSequence> sequences = ShortSequencesOf(reference);
  const std::unique_ptr<CudaModel> one = MakeModel(reference), other = MakeModel(reference);
  EXPECT_TRUE(SameBits(LogitsAlone(*one, sequences), LogitsAlone(*other, sequences)));
}

TEST_F(CudaModelLoadTest, InfoIsThatOfTheConfigAndTheDevice) {
  for (const char* const name :
       {"MhaEveryBias", "Gqa64", "MlaLearned", "MlaWideRank", "MlaLowRankQueries",
        "GqaNormedOutputs", "GqaWindowsAndCaps", "Gqa64Windows", "Mla256Premultiplied",
        "MlaExpands128", "GqaExperts", "Gqa64ManyExperts", "Mla256ExpertsOfGroups"}) {
    SCOPED_TRACE(name);
    const Reference& reference = FindReference(name);
    const BackendOptions options = CudaOptions(reference.config, 7, 96);
    const std::unique_ptr<ModelBackend> model = Load(reference, options);
    const BackendInfo& info = model->info();
    EXPECT_EQ(info.vocab_size, reference.config.vocab_size);
    EXPECT_EQ(info.max_positions, reference.config.max_position_embeddings);
    EXPECT_EQ(info.blocks, 7);
    EXPECT_EQ(info.cache_bytes, 7 * info.geometry.BlockBytes());
    EXPECT_EQ(info.cache_bytes, options.kv_cache_bytes);
    EXPECT_TRUE(info.prompt_rows_differ);
    EXPECT_EQ(info.likely_tokens, std::min<int64_t>(info.vocab_size, 128));
    ASSERT_TRUE(info.device_memory.has_value());
    EXPECT_EQ(info.device_memory->device, "cuda:0, " + CudaDevices()[0].name);
    const bool experts = reference.config.experts.n_routed_experts > 0;
    EXPECT_THAT(info.device_memory->kernels,
                ContainsRegex(
                    std::string("[0-9]+ of [0-9]+ products by cuBLASLt [0-9]+[.][0-9]+[.][0-9]+") +
                    (experts ? ", [0-2] of 2 products of experts by tensor cores$" : "$")));
    const CudaModelBytes counted = CountCudaModelBytes(reference.config, options);
    EXPECT_EQ(info.device_memory->weight_bytes, counted.weights);
    EXPECT_EQ(info.device_memory->workspace_bytes, counted.workspace);
  }
}

TEST_F(CudaModelLoadTest, SaysWhichKernelsMultiplyByExperts) {
  const auto kernels = [](const Reference& reference) {
    return Load(reference, CudaOptions(reference.config, 7, 96))->info().device_memory->kernels;
  };
  EXPECT_THAT(kernels(FindReference("Gqa64ManyExperts")),
              EndsWith(", 2 of 2 products of experts by tensor cores"));
  EXPECT_THAT(kernels(FindReference("ExpertsOfGroups")),
              EndsWith(", 1 of 2 products of experts by tensor cores"));
}

TEST_F(CudaModelLoadTest, TellsHowManyLayersAreLoaded) {
  const Reference& reference = FindReference("GqaOneGroup");
  HeldCudaWeights weights = reference.weights;
  std::vector<int64_t> told;
  MakeCudaModel(reference.config, weights, CudaOptions(reference.config, 1, 64), 0,
                [&](int64_t layers) { told.push_back(layers); });
  EXPECT_THAT(told, ElementsAre(1, 2, 3));
}

TEST_F(CudaModelLoadTest, RefusesOptionsThatItCannotServe) {
  const Reference& reference = FindReference("GqaLearned");
  const BackendOptions good = CudaOptions(reference.config, 2, 64);
  BackendOptions options = good;
  options.cache_format = CacheFormat::kFloat32;
  EXPECT_THAT([&] { Load(reference, options); },
              ThrowsMessage<LoadError>(AllOf(HasSubstr("bfloat16"), HasSubstr("float32"))));
  options = good;
  options.max_step_tokens = 1 << 20;
  EXPECT_THAT([&] { Load(reference, options); },
              ThrowsMessage<LoadError>(HasSubstr("a step of 1048576 tokens")));
  options = good;
  options.kv_cache_bytes = 1;
  EXPECT_THROW(Load(reference, options), LoadError);
  EXPECT_THROW(Load(reference, good, 1000), std::runtime_error);
  EXPECT_NE(Load(reference, good), nullptr);
}

TEST_F(CudaModelLoadTest, RefusesWidthsThatItCannotCompute) {
  const auto expect_refused = [](const std::string& refusal, const auto& change) {
    Reference reference = FindReference("Gqa64");
    change(reference.config);
    const BackendOptions options = CudaOptions(reference.config, 2, 64);
    EXPECT_THAT([&] { Load(reference, options); }, ThrowsMessage<LoadError>(HasSubstr(refusal)));
    EXPECT_THAT([&] { CountCudaModelBytes(reference.config, options); },
                ThrowsMessage<LoadError>(HasSubstr(refusal)));
  };
  expect_refused(
      "layer 0: 8 heads whose keys and values have 12002 elements; the CUDA backend allows at most "
      "65535 and 12000",
      [](ModelConfig& config) { config.head_dim = 6001; });
}

TEST_F(CudaModelLoadTest, SaysWhatDoesNotFitInTheMemory) {
  const Reference& reference = FindReference("Gqa64");
  BackendOptions options = CudaOptions(reference.config, 1, 64);
  options.kv_cache_bytes *= 2 * CudaDevices()[0].memory_bytes / options.kv_cache_bytes;
  EXPECT_THAT([&] { Load(reference, options); },
              ThrowsMessage<LoadError>(AllOf(HasSubstr("not enough memory on cuda:0"),
                                             HasSubstr("weights of"), HasSubstr("a KV cache of"),
                                             HasSubstr("a workspace of"))));
}

// --- Windows

// Rows of several splits, in a step with others.
TEST_F(CudaTest, SplitsOfAWindowAreThoseOfTheRowAlone) {
  const Reference& reference = FindReference("Gqa128LongWindow");
  const std::unique_ptr<CudaModel> model = MakeModel(reference);
  SequenceRunner runner(*model, reference.sequences);
  runner.RunInCrowd(3);
  const SequenceLogits alone = LogitsAlone(*model, reference.sequences);
  for (size_t i = 0; i < alone.size(); ++i) {
    const int64_t last = 3 * reference.config.vocab_size;
    EXPECT_TRUE(SameBits(std::span(runner.logits()[i]).last(last), std::span(alone[i]).last(last)));
  }
}

// --- Prompts of MLA over expanded keys and values

class ExpandedPromptTest : public CudaTest {
 protected:
  // The beginning of a reference's first sequence.
  static ReferenceSequence Beginning(const Reference& reference, int64_t length, int64_t prompt) {
    ReferenceSequence sequence = reference.sequences[0];
    sequence.ids.resize(length);
    sequence.logits.resize(length * reference.config.vocab_size);
    sequence.prompt = prompt;
    return sequence;
  }
};

TEST_F(ExpandedPromptTest, FactoredModelsOfTheKernelsWidthsExpandUnlessToldOtherwise) {
  const auto expand_from = [](const char* name, std::optional<int64_t> asked) {
    return MakeModel(FindReference(name), asked)->info().expand_from;
  };
  EXPECT_EQ(expand_from("MlaExpands128", {}), 0);
  EXPECT_EQ(expand_from("MlaExpands128", 50), 50);
  EXPECT_EQ(expand_from("MlaExpands128", kNeverExpand), std::nullopt);
  EXPECT_EQ(expand_from("MlaExpands128", 320), std::nullopt);  // the context's end
  for (const char* const name : {"Mla512Heads16", "Mla256Premultiplied", "MlaNarrow", "Gqa64"}) {
    EXPECT_EQ(expand_from(name, 0), std::nullopt) << name;
  }
}

TEST_F(ExpandedPromptTest, RowsBeforeThePositionAreReduced) {
  constexpr int64_t kFrom = 70;
  for (const char* const name : {"MlaExpands128", "MlaExpands64LowRank"}) {
    SCOPED_TRACE(name);
    const Reference& reference = FindReference(name);
    const std::unique_ptr<CudaModel> model = MakeModel(reference, kFrom);
    const std::unique_ptr<CudaModel> reduced = MakeModel(reference, kNeverExpand);
    ExpectSameBitsInEveryBatchAndChunking(*model, reference);
    const std::vector<ReferenceSequence> one = {Beginning(reference, 120, 100)};
    ExpectLogitsCloseToFloat64(*model, one);
    const SequenceLogits logits = LogitsAlone(*model, one), other = LogitsAlone(*reduced, one);
    const int64_t vocab = reference.config.vocab_size;
    const auto row = [vocab](const SequenceLogits& all, int64_t position) {
      return std::span(all[0]).subspan(position * vocab, vocab);
    };
    for (int64_t i = 0; i < kFrom; ++i) ASSERT_TRUE(SameBits(row(logits, i), row(other, i))) << i;
    EXPECT_FALSE(SameBits(row(logits, kFrom), row(other, kFrom)));
  }
}

// Models with short steps expand long contexts in several passes.
TEST_F(ExpandedPromptTest, PassesOverAContextDoNotChangeABit) {
  for (const char* const name : {"MlaExpandsLong", "MlaExpands128"}) {
    SCOPED_TRACE(name);
    const Reference& reference = FindReference(name);
    const int64_t length = reference.sequences[0].length() > 300 ? 300 : 170;
    const std::vector<ReferenceSequence> one = {Beginning(reference, length, length - 10)};
    const SequenceLogits whole = LogitsAlone(*MakeModel(reference), one);
    const std::unique_ptr<CudaModel> model =
        MakeModel(reference, CudaOptions(reference.config, 30, 50));
    SequenceRunner runner(*model, one);
    runner.RunAlone({50, 13}, 1);
    EXPECT_TRUE(SameBits(runner.logits(), whole));
  }
}

// --- Steps

// Sequences of one small model, each of which has been computed by itself.
class CudaModelStepTest : public CudaTest {
 protected:
  using Piece = SequenceRunner::Piece;
  static constexpr int64_t kMaxStepTokens = 2870;

  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped()) Use("MhaLearned", {.length = 40, .prompt = 24, .copies = 120});
  }

  struct Shape {
    int64_t length;
    int64_t prompt;
    size_t copies;
  };

  // Uses copies of the beginning of a reference's first sequence.
  void Use(const char* name, const Shape& shape) {
    const Reference& reference = FindReference(name);
    ReferenceSequence sequence = reference.sequences[0];
    sequence.ids.resize(shape.length);
    sequence.prompt = shape.prompt;
    sequences_.assign(shape.copies, sequence);
    model_ = MakeModel(
        reference, CudaOptions(reference.config, BlocksFor(sequences_, 16, 1) + 3, kMaxStepTokens));
    runner_ = std::make_unique<SequenceRunner>(*model_, sequences_);
    expected_ = LogitsAlone(*model_, {sequences_[0]})[0];
  }

  int64_t length() const { return sequences_[0].length(); }
  int64_t prompt() const { return sequences_[0].prompt; }

  // The same piece of each of the first sequences.
  static std::vector<Piece> Pieces(size_t sequences, int64_t start, int64_t count) {
    std::vector<Piece> pieces;
    for (size_t i = 0; i < sequences; ++i) pieces.push_back({i, start, count});
    return pieces;
  }

  // Computes a sequence token by token.
  void Decode(size_t sequence, int64_t begin, int64_t end) {
    for (; begin < end; ++begin) runner_->Step({{sequence, begin, 1}});
  }

  // The expected logits of a position.
  std::span<const float> Expected(int64_t position) const { return Row(expected_, position); }
  std::span<const float> Row(std::span<const float> logits, int64_t row) const {
    const int64_t vocab = model_->info().vocab_size;
    return logits.subspan(row * vocab, vocab);
  }

  void ExpectLogitsOfWholeSequence(size_t sequence) {
    EXPECT_TRUE(SameBits(runner_->logits()[sequence], expected_));
  }

  std::vector<ReferenceSequence> sequences_;
  std::unique_ptr<CudaModel> model_;
  std::unique_ptr<SequenceRunner> runner_;
  std::vector<float> expected_;  // one sequence, [length, vocab]
};

TEST_F(CudaModelStepTest, RefusesWhatIsNotTheModelsAndGoesOn) {
  runner_->Step({{0, 0, prompt()}});
  const auto expect_refused = [&](const std::function<void(StepInput&)>& spoil, const char* why) {
    StepInput step = runner_->Input({{0, prompt(), 1}});
    step.logit_rows = {0};
    spoil(step);
    EXPECT_THAT([&] { model_->Step(step); }, ThrowsMessage<std::out_of_range>(HasSubstr(why)));
  };
  expect_refused([](StepInput& step) { step.ids[0] = 37; }, "token id 37");
  expect_refused([](StepInput& step) { step.ids[0] = -1; }, "token id -1");
  expect_refused([](StepInput& step) { step.sequences[0].start = 40; }, "position 40");
  expect_refused([](StepInput& step) { step.sequences[0].start = -1; }, "position -1");
  expect_refused([&](StepInput& step) { step = runner_->Input(Pieces(120, 0, prompt())); },
                 "a step of 2880 tokens; allowed: 2870");
  Decode(0, prompt(), length());
  ExpectLogitsOfWholeSequence(0);
}

TEST_F(CudaModelStepTest, AStepOfNothingHasNoLogits) {
  runner_->Step({{0, 0, prompt()}});
  EXPECT_TRUE(model_->Step({}).empty());
  Decode(0, prompt(), length());
  ExpectLogitsOfWholeSequence(0);
}

TEST_F(CudaModelStepTest, LogitsDoNotDependOnWhichRowsAreWanted) {
  const std::vector<std::vector<int64_t>> all_wanted = {{7}, {}, {5, 0, 23}, {3, 3, 2, 1}};
  for (const std::vector<int64_t>& wanted : all_wanted) {
    StepInput step = runner_->Input({{0, 0, prompt()}});
    step.logit_rows = wanted;
    const std::span<const float> logits = model_->Step(step);
    ASSERT_EQ(logits.size(), wanted.size() * model_->info().vocab_size);
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_TRUE(SameBits(Row(logits, i), Expected(wanted[i]))) << "row " << wanted[i];
    }
  }
}

// More rows than a step computes logits for at once, of prompts and of generated tokens.
TEST_F(CudaModelStepTest, ManyLogitsAreTheSameBitsAsThoseOfSingleRows) {
  constexpr size_t kSequences = 260;
  Use("MhaLearned", {.length = 5, .prompt = 3, .copies = kSequences});
  runner_->Step(Pieces(kSequences, 0, prompt()));
  for (int64_t position = prompt(); position < length(); ++position) {
    runner_->Step(Pieces(kSequences, position, 1));
  }
  for (size_t i = 0; i < kSequences; ++i) ExpectLogitsOfWholeSequence(i);
}

TEST_F(CudaModelStepTest, LikelyTokensAreThoseOfTheLogits) {
  constexpr size_t kSequences = 260;
  // Its vocabulary is larger than the number of likely tokens.
  Use("GqaEveryFactor", {.length = 4, .prompt = 3, .copies = kSequences});
  runner_->Step(Pieces(kSequences, 0, prompt()));
  const int64_t count = model_->info().likely_tokens;
  // Likely rows come before rows of logits in the results.
  const std::vector<std::pair<size_t, size_t>> all_counts = {{1, 0}, {3, 2}, {0, 3}, {250, 10}};
  for (const auto& [likely_rows, logit_rows] : all_counts) {
    SCOPED_TRACE(testing::Message() << likely_rows << " likely and " << logit_rows << " whole");
    StepInput step = runner_->Input(Pieces(likely_rows + logit_rows, prompt(), 1));
    step.likely_rows.resize(likely_rows);
    std::iota(step.likely_rows.begin(), step.likely_rows.end(), logit_rows);
    for (size_t i = 0; i < likely_rows; ++i) {
      step.likely_scales.push_back(1 / (1 + 0.01f * static_cast<float>(i)));
    }
    step.logit_rows.resize(logit_rows);
    std::iota(step.logit_rows.begin(), step.logit_rows.end(), 0);
    const std::span<const float> logits = model_->Step(step);
    ASSERT_EQ(model_->likely().size(), likely_rows);
    for (size_t i = 0; i < likely_rows; ++i) {
      const LikelyRow expected(Expected(prompt()), count, step.likely_scales[i]);
      const LikelyTokens& likely = model_->likely()[i];
      ASSERT_THAT(likely.tokens, ElementsAreArray(expected.tokens));
      ASSERT_THAT(likely.logits, ElementsAreArray(expected.logits));
      // Exponentials are float32, their sum is float64.
      ASSERT_NEAR(likely.log_sum_exp, expected.log_sum_exp, 1e-5);
      ASSERT_NEAR(likely.weight_sum, expected.weight_sum, 1e-5 * expected.weight_sum);
    }
    ASSERT_EQ(logits.size(), logit_rows * model_->info().vocab_size);
    for (size_t i = 0; i < logit_rows; ++i) {
      ASSERT_TRUE(SameBits(Row(logits, i), Expected(prompt()))) << "row " << i;
    }
    const std::vector<int64_t> fetched(likely_rows > 0 ? 2 : 0, std::ssize(step.likely_rows) - 1);
    const std::span<const float> later = model_->FetchLogits(fetched);
    ASSERT_EQ(later.size(), fetched.size() * model_->info().vocab_size);
    for (size_t i = 0; i < fetched.size(); ++i) {
      ASSERT_TRUE(SameBits(Row(later, i), Expected(prompt())));
    }
  }
}

// A step's description lies in growing device memory, whose address graphs contain.
TEST_F(CudaModelStepTest, DecodesOnAfterALongerStep) {
  runner_->Step({{0, 0, prompt()}});
  Decode(0, prompt(), prompt() + 1);
  runner_->Step(Pieces(100, 0, prompt()));
  Decode(0, prompt(), length());
  ExpectLogitsOfWholeSequence(0);
}

// Graphs are cached for 128 shapes: combinations of rows, longest context and requested logits.
TEST_F(CudaModelStepTest, DecodesInMoreShapesThanGraphsAreKeptFor) {
  constexpr size_t kMostRows = 16;
  constexpr int64_t kMostPositions = 33;
  for (ReferenceSequence& sequence : sequences_) sequence.prompt = 1;
  runner_ = std::make_unique<SequenceRunner>(*model_, sequences_);
  expected_ = LogitsAlone(*model_, {sequences_[0]})[0];
  runner_->Step(Pieces(kMostRows, 0, 1));
  int shapes = 0;
  const auto step = [&](size_t rows, int64_t position, size_t wanted, bool likely) {
    StepInput input = runner_->Input(Pieces(rows, position, 1));
    for (size_t i = 0; i < wanted; ++i) input.logit_rows.push_back(rows - 1 - i);
    if (likely) {
      input.likely_rows.push_back(0);
      input.likely_scales.push_back(1);
    }
    const std::span<const float> logits = model_->Step(input);
    ++shapes;
    for (size_t i = 0; i < wanted; ++i) {
      ASSERT_TRUE(SameBits(Row(logits, i), Expected(position)))
          << rows << " rows at position " << position;
    }
  };
  for (int64_t position = 1; position < kMostPositions; ++position) {
    runner_->Step(Pieces(kMostRows, position, 1));
    if (!std::has_single_bit(static_cast<uint64_t>(position))) continue;
    for (size_t rows = 1; rows <= kMostRows; rows *= 2) {
      for (size_t wanted = 1; wanted <= rows; wanted *= 2) {
        step(rows, position, wanted, false);
        step(rows, position, wanted, true);
      }
    }
  }
  EXPECT_GT(shapes, 128);
}

// --- Experts

class CudaExpertsTest : public CudaTest {};

// Padding rows do not count. The counts are of the steps so far.
TEST_F(CudaExpertsTest, CountTheirTokens) {
  EXPECT_FALSE(MakeModel(FindReference("GqaLearned"))->expert_load());
  for (const char* const name : {"GqaExperts", "Mla256ExpertsOfGroups"}) {
    SCOPED_TRACE(name);
    const Reference& reference = FindReference(name);
    const ExpertsConfig& experts = reference.config.experts;
    const std::unique_ptr<CudaModel> model = MakeModel(reference);
    int64_t layers = 0, tokens = 0;
    for (int64_t i = 0; i < reference.config.num_hidden_layers; ++i) {
      layers += reference.config.HasExperts(i) ? 1 : 0;
    }
    ASSERT_TRUE(model->expert_load());
    EXPECT_EQ(model->expert_load()->tokens, 0);
    EXPECT_EQ(model->expert_load()->untouched, layers * experts.n_routed_experts);
    SequenceRunner runner(*model, reference.sequences);
    const std::vector<std::vector<SequenceRunner::Piece>> steps = {
        {{0, 0, 7}}, {{0, 7, 1}, {1, 0, 3}}, {{1, 3, 1}, {0, 8, 2}}, {{0, 10, 14}}};
    for (const std::vector<SequenceRunner::Piece>& pieces : steps) {
      model->Step(runner.Input(pieces));
      for (const SequenceRunner::Piece& piece : pieces) tokens += piece.count;
      EXPECT_EQ(model->expert_load()->tokens, tokens * experts.num_experts_per_tok * layers);
    }
    const ExpertLoad load = *model->expert_load();
    EXPECT_LT(load.untouched, layers * experts.n_routed_experts);
    EXPECT_GT(load.most, 1);
    EXPECT_LE(load.most, static_cast<double>(experts.n_routed_experts) /
                             static_cast<double>(experts.num_experts_per_tok));
    EXPECT_LT(load.least, 1);
  }
}

TEST_F(CudaExpertsTest, AStepReadsTheExpertsThatItsTokensChoose) {
  const Reference& reference = FindReference("Gqa64ManyExperts");
  const std::unique_ptr<CudaModel> model = MakeModel(reference);
  const int64_t expert = DeviceBytes(ExpertShapes(reference.config)) * 2;  // in both layers
  const int64_t others = model->weight_bytes_read(0);
  EXPECT_EQ(model->weight_bytes_read(1), others + 4 * expert);
  EXPECT_EQ(model->weight_bytes_read(2), others + 7 * expert);  // 16 (1 - (12 / 16)^2)
  EXPECT_EQ(model->weight_bytes_read(100'000), others + 16 * expert);
}

// --- Shapes of weights, which need no GPU

void ExpectSameShape(const CudaMatrix& a, const CudaMatrix& b) {
  EXPECT_EQ(a.outputs, b.outputs);
  EXPECT_EQ(a.inputs, b.inputs);
  EXPECT_EQ(static_cast<int64_t>(a.elements.size()), a.outputs * a.inputs);
}

void ExpectSameSize(const CudaVector& a, const CudaVector& b) {
  EXPECT_EQ(a.size, b.size);
  EXPECT_EQ(std::ssize(a.elements), a.size);
}

TEST(CudaWeightsTest, LayersHaveTheShapesThatTheConfigImplies) {
  for (const char* const name : kReferenceNames) {
    const Reference& reference = FindReference(name);
    HeldCudaWeights weights = reference.weights;
    for (int64_t i = 0; i < reference.config.num_hidden_layers; ++i) {
      SCOPED_TRACE(std::string(name) + ", layer " + std::to_string(i));
      const CudaLayerWeights layer = weights.Layer(i), shapes = LayerShapes(reference.config, i);
      for (CudaMatrix CudaLayerWeights::*const matrix :
           {&CudaLayerWeights::in, &CudaLayerWeights::query_up, &CudaLayerWeights::uk,
            &CudaLayerWeights::uv, &CudaLayerWeights::o, &CudaLayerWeights::mlp_in,
            &CudaLayerWeights::mlp_down}) {
        ExpectSameShape(layer.*matrix, shapes.*matrix);
      }
      for (CudaVector CudaLayerWeights::*const vector :
           {&CudaLayerWeights::in_bias, &CudaLayerWeights::q_norm, &CudaLayerWeights::k_norm,
            &CudaLayerWeights::query_norm, &CudaLayerWeights::query_up_bias,
            &CudaLayerWeights::latent_norm, &CudaLayerWeights::o_bias,
            &CudaLayerWeights::mlp_in_bias, &CudaLayerWeights::mlp_down_bias,
            &CudaLayerWeights::router, &CudaLayerWeights::router_bias,
            &CudaLayerWeights::shared_gate}) {
        ExpectSameSize(layer.*vector, shapes.*vector);
      }
      for (CudaNorm CudaLayerWeights::*const norm :
           {&CudaLayerWeights::attention_norm, &CudaLayerWeights::attention_output_norm,
            &CudaLayerWeights::mlp_norm, &CudaLayerWeights::mlp_output_norm}) {
        ExpectSameSize((layer.*norm).weight, (shapes.*norm).weight);
        ExpectSameSize((layer.*norm).bias, (shapes.*norm).bias);
      }
      EXPECT_EQ(DeviceBytes(layer), DeviceBytes(shapes));
      if (!reference.config.HasExperts(i)) continue;
      const CudaExpert of_config = ExpertShapes(reference.config);
      for (int64_t index = 0; index < reference.config.experts.n_routed_experts; ++index) {
        const CudaExpert expert = weights.Expert(i, index);
        ExpectSameShape(expert.in, of_config.in);
        ExpectSameShape(expert.down, of_config.down);
      }
    }
  }
}

// Any config.json of a few bytes can name shapes of more elements than a host has memory.
TEST(CudaWeightsTest, HugeShapesAreCountedWithoutTheirElements) {
  ModelConfig config = FindReference("GqaExperts").config;
  config.hidden_size = 1 << 20;
  config.experts.n_routed_experts = 4096;
  constexpr int64_t kRouter = int64_t{1} << 32;
  int64_t routers = 0;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const CudaLayerWeights layer = LayerShapes(config, i);
    EXPECT_TRUE(layer.router.elements.empty());
    EXPECT_TRUE(layer.mlp_norm.weight.elements.empty());
    EXPECT_EQ(layer.router.size, config.HasExperts(i) ? kRouter : 0);
    routers += 4 * layer.router.size;
  }
  EXPECT_GT(routers, 0);
  EXPECT_GT(CountCudaModelBytes(config, CudaOptions(config, 1, 64)).weights, routers);
}

}  // namespace
}  // namespace triptych::cuda_model_test
