#include "engine/decoder/decoder.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/attention/dropout.h"
#include "engine/backend/cpu/pack_weights.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/write_weights.h"
#include "engine/tools/quantize.h"
#include "tests/support/gradients.h"
#include "tests/support/oracle.h"
#include "tests/support/random_model.h"
#include "tests/support/serving.h"
#include "tests/support/shared_data.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"

namespace triptych::decoder_test {
namespace {

// float64 against float64: rounding only.
constexpr double kExact = 1e-11;
// Logits in float32 with scaled weights, which are of the order of 1
// (engine/definitions.md#tolerances).
constexpr double kLogits = 1e-5;
// A mistake is detected if its error is far above this.
constexpr double kWrong = 1e-2;

std::vector<int64_t> RandomIds(const ModelConfig& config, int64_t length, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<int64_t> ids(length);
  for (int64_t& id : ids) id = static_cast<int64_t>(generator() % config.vocab_size);
  return ids;
}

at::Tensor OracleLogits(const ModelConfig& config, const Weights& weights,
                        const std::vector<int64_t>& ids) {
  return ToTensor(oracle::Logits(config, ToArrays(weights), ids));
}

// Logits of one sequence [length, vocab], fed in pieces of the given sizes, the last one repeated.
at::Tensor InPieces(const Served& served, const std::vector<int64_t>& ids,
                    const std::vector<int64_t>& sizes) {
  StepRunner runner(served, 1);
  std::vector<at::Tensor> logits;
  auto next = ids.begin();
  for (size_t i = 0; next != ids.end(); ++i) {
    const int64_t size = std::min(sizes[std::min(i, sizes.size() - 1)], ids.end() - next);
    logits.push_back(runner.Step({{0, {next, next + size}}}));
    next += size;
  }
  return at::cat(logits);
}

// Whole; one token at a time; across the edges of blocks; a prompt, then decoding.
std::vector<std::vector<int64_t>> Cuts(const std::vector<int64_t>& ids) {
  return {{std::ssize(ids)}, {1}, {5, 4, 3}, {13, 1}};
}

// The largest difference between sequences of several lengths stepped together and each alone.
// Each step feeds a third of every sequence, so kinds of work mix.
double BatchDifference(const Served& served) {
  const std::vector<int64_t> lengths = {9, 1, 30, 4, 16, 25, 11};
  const int64_t rounds = 3;
  StepRunner together(served, std::ssize(lengths));
  std::vector<std::vector<int64_t>> ids;
  std::vector<std::vector<at::Tensor>> logits(lengths.size());
  for (size_t s = 0; s < lengths.size(); ++s) {
    ids.push_back(RandomIds(served.config, lengths[s], 7 + s));
  }
  for (int64_t round = 0; round < rounds; ++round) {
    std::vector<NewTokens> pieces;
    for (int64_t s = 0; s < std::ssize(lengths); ++s) {
      const int64_t first = lengths[s] * round / rounds;
      const int64_t last = lengths[s] * (round + 1) / rounds;
      if (first < last) pieces.push_back({s, {ids[s].begin() + first, ids[s].begin() + last}});
    }
    const at::Tensor step = together.Step(pieces);
    int64_t row = 0;
    for (const NewTokens& piece : pieces) {
      logits[piece.sequence].push_back(step.narrow(0, row, std::ssize(piece.ids)));
      row += std::ssize(piece.ids);
    }
  }
  double largest = 0;
  for (size_t s = 0; s < lengths.size(); ++s) {
    const at::Tensor alone = InPieces(served, ids[s], {lengths[s]});
    largest = std::max(largest, LargestDifference(at::cat(logits[s]), alone));
  }
  return largest;
}

class DecoderTest : public testing::TestWithParam<NamedConfig> {
 protected:
  const ModelConfig& config() const { return GetParam().config; }
  // The model on a backend; its cache is of the same format.
  Served Serving(ComputeType compute = ComputeType::kFloat32) const {
    return {.config = config(),
            .weights = weights_,
            .compute = compute,
            .cache_format =
                compute == ComputeType::kBFloat16 ? CacheFormat::kBFloat16 : CacheFormat::kFloat32};
  }
  // The logits of one sequence as the decoder trains and evaluates: [length, vocab].
  at::Tensor Dense(ComputeType compute, const std::vector<int64_t>& ids) const {
    const Decoder decoder(config(), Cast(weights_, ToScalarType(compute)), compute);
    return decoder.Forward(ToTensor(ids).unsqueeze(0))[0];
  }

  const Weights weights_ = RandomWeights(GetParam().config, 1);
};

// MLA's matrices are rounded after they were absorbed: LatentLayerTest.
TEST_P(DecoderTest, IntegersServeTheirRoundedWeights) {
  if (config().attention == AttentionKind::kMla) return;
  // Every token takes all experts: rounding cannot change its choice.
  ModelConfig config = this->config();
  config.experts.num_experts_per_tok = config.experts.n_routed_experts;
  config.experts.topk_group = config.experts.n_group;
  const Served numbers{.config = config, .weights = weights_};
  const std::vector<int64_t> ids = RandomIds(config, 20, 2);
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
    Weights rounded = weights_;
    for (auto& [name, tensor] : rounded) {
      const bool of_router =
          name.ends_with("mlp.gate.weight") || name.ends_with("shared_expert_gate.weight");
      if (tensor.dim() == 2 && name != kPositionsName && !of_router) {
        tensor = tools::RoundToNearest(tensor, format);
      }
    }
    Served integers = numbers;
    integers.weight_format = format;
    const at::Tensor logits = InPieces(integers, ids, {20});
    const Served of_rounded{.config = config, .weights = rounded};
    // Inputs are rounded too, by at most 1/254 of the largest of each group, which moves these
    // models' logits by up to 3%. The weights before rounding are farther away, ten times so
    // with four bits.
    const double error = RelativeError(logits, InPieces(of_rounded, ids, {20}));
    EXPECT_LE(error, 5e-2);
    EXPECT_LT(error, (format == WeightFormat::kInt4 ? 0.2 : 0.9) *
                         RelativeError(logits, InPieces(numbers, ids, {20})));
  }
}

TEST_P(DecoderTest, ForwardEqualsTheDefinition) {
  const Decoder decoder(config(), weights_, ComputeType::kFloat64);
  for (const int64_t length :
       {int64_t{1}, int64_t{2}, int64_t{17}, config().max_position_embeddings}) {
    const std::vector<int64_t> first = RandomIds(config(), length, 2);
    const std::vector<int64_t> second = RandomIds(config(), length, 3);
    const at::Tensor logits = decoder.Forward(at::stack({ToTensor(first), ToTensor(second)}));
    ASSERT_EQ(logits.sizes(), (std::vector<int64_t>{2, length, config().vocab_size}));
    EXPECT_LE(RelativeError(logits[0], OracleLogits(config(), weights_, first)), kExact);
    EXPECT_LE(RelativeError(logits[1], OracleLogits(config(), weights_, second)), kExact);
  }
}

TEST_P(DecoderTest, ForwardInFloat32) {
  const Decoder decoder(config(), Cast(weights_, at::kFloat), ComputeType::kFloat32);
  const std::vector<int64_t> ids = RandomIds(config(), config().max_position_embeddings, 4);
  const at::Tensor logits = decoder.Forward(ToTensor(ids).unsqueeze(0))[0];
  EXPECT_LE(LargestDifference(logits, OracleLogits(config(), weights_, ids)), kLogits);
}

TEST_P(DecoderTest, PagedEqualsDenseHoweverThePromptIsCut) {
  const std::vector<int64_t> ids = RandomIds(config(), config().max_position_embeddings, 5);
  const at::Tensor dense = Dense(ComputeType::kFloat32, ids);
  for (const std::vector<int64_t>& sizes : Cuts(ids)) {
    const at::Tensor paged = InPieces(Serving(), ids, sizes);
    EXPECT_EQ(paged.scalar_type(), at::kFloat);
    EXPECT_LE(LargestDifference(paged, dense), kLogits) << "first piece " << sizes[0];
  }
  EXPECT_LE(LargestDifference(InPieces(Serving(), ids, {7}), OracleLogits(config(), weights_, ids)),
            kLogits);
}

TEST_P(DecoderTest, PagedSequenceOfOneToken) {
  const std::vector<int64_t> ids = RandomIds(config(), 1, 6);
  EXPECT_LE(LargestDifference(InPieces(Serving(), ids, {1}), OracleLogits(config(), weights_, ids)),
            kLogits);
}

TEST_P(DecoderTest, BatchOfSequencesEqualsSingleSequences) {
  EXPECT_EQ(BatchDifference(Serving()), 0);
}

TEST_P(DecoderTest, ServesInFloat64WhatForwardComputes) {
  const std::vector<int64_t> ids = RandomIds(config(), config().max_position_embeddings, 5);
  const at::Tensor dense = Dense(ComputeType::kFloat64, ids);
  for (const std::vector<int64_t>& sizes : Cuts(ids)) {
    const at::Tensor paged = InPieces(Serving(ComputeType::kFloat64), ids, sizes);
    EXPECT_EQ(paged.scalar_type(), at::kDouble);
    EXPECT_LE(RelativeError(paged, dense), kExact) << "first piece " << sizes[0];
  }
  Served served = Serving(ComputeType::kFloat64);
  for (const int64_t block_positions : {16, 3}) {  // attended together with more blocks, and fewer
    served.block_positions = block_positions;
    EXPECT_LE(BatchDifference(served), kExact);
  }
}

// As it serves on devices without kernels.
TEST_P(DecoderTest, ServesOnTensorsInFloat32) {
  Served served = Serving();
  served.on_tensors = true;
  const std::vector<int64_t> ids = RandomIds(config(), config().max_position_embeddings, 5);
  const at::Tensor expected = OracleLogits(config(), weights_, ids);
  for (const std::vector<int64_t>& sizes : Cuts(ids)) {
    const at::Tensor paged = InPieces(served, ids, sizes);
    EXPECT_EQ(paged.scalar_type(), at::kFloat);
    EXPECT_LE(LargestDifference(paged, expected), kLogits) << "first piece " << sizes[0];
  }
  EXPECT_LE(BatchDifference(served), kLogits);
}

TEST_P(DecoderTest, ServesOnCudaWhatTheCpuComputes) {
  if (!at::hasCUDA()) GTEST_SKIP() << "this LibTorch has no CUDA";
  Weights on_device = Cast(weights_, at::kFloat);
  for (auto& [name, tensor] : on_device) tensor = tensor.to(at::kCUDA);
  const Served on_cuda{.config = config(), .weights = on_device};
  const std::vector<int64_t> ids = RandomIds(config(), config().max_position_embeddings, 5);
  const at::Tensor expected = InPieces(Serving(), ids, {1});
  for (const std::vector<int64_t>& sizes : Cuts(ids)) {
    EXPECT_LE(RelativeError(InPieces(on_cuda, ids, sizes), expected), 1e-4);
  }
  EXPECT_LE(BatchDifference(on_cuda), 1e-4);
}

// A sequence's logits, bit for bit: alone in one step, token by token, in pieces, and among others,
// each on one thread and on more.
TEST_P(DecoderTest, LogitsAreTheSameBitsInEveryBatch) {
  for (const ComputeType compute : {ComputeType::kFloat32, ComputeType::kBFloat16}) {
    const std::vector<int64_t> ids = RandomIds(config(), config().max_position_embeddings, 30);
    const std::vector<int64_t> other = RandomIds(config(), 31, 31);
    at::Tensor expected;
    for (const int threads : {1, 2, 3}) {
      Served served = Serving(compute);
      served.threads = threads;
      const at::Tensor whole = InPieces(served, ids, {std::ssize(ids)});
      if (!expected.defined()) expected = whole;
      EXPECT_TRUE(at::equal(whole, expected)) << threads << " threads";
      for (const std::vector<int64_t>& sizes :
           {std::vector<int64_t>{1}, {5, 4, 3}, {13, 1}, {9, 17}}) {
        EXPECT_TRUE(at::equal(InPieces(served, ids, sizes), expected))
            << threads << " threads, first piece " << sizes[0];
      }

      StepRunner runner(served, 4);
      runner.Step({{1, other}});
      std::vector<at::Tensor> logits;
      const std::vector<int64_t> head(ids.begin(), ids.begin() + 11);
      logits.push_back(runner.Step({{0, {4, 2}}, {2, head}, {1, {other[0]}}}).narrow(0, 2, 11));
      for (size_t i = head.size(); i < ids.size(); ++i) {
        const at::Tensor step = runner.Step({{2, {ids[i]}}, {3, {other[i % 31]}}});
        logits.push_back(step.narrow(0, 0, 1));
      }
      EXPECT_TRUE(at::equal(at::cat(logits), expected)) << threads << " threads, among others";
    }
  }
}

// Whether panels of positions lie within blocks or straddle them.
TEST_P(DecoderTest, LogitsAreTheSameBitsInBlocksOfEverySize) {
  for (const ComputeType compute : {ComputeType::kFloat32, ComputeType::kBFloat16}) {
    Served served = Serving(compute);
    const std::vector<int64_t> ids = RandomIds(config(), config().max_position_embeddings, 32);
    const at::Tensor expected = InPieces(served, ids, {9, 1});
    for (const int64_t block_positions : {1, 4, 5, 32}) {
      served.block_positions = block_positions;
      EXPECT_TRUE(at::equal(InPieces(served, ids, {9, 1}), expected)) << block_positions;
    }
  }
}

// bfloat16 has 8 significant bits: each of some 20 roundings on the way is off by up to 2^-9 of its
// value, at random, which adds up to about a hundredth.
TEST_P(DecoderTest, BFloat16IsNearFloat64) {
  const Weights rounded = Cast(weights_, at::kBFloat16);
  const std::vector<int64_t> ids = RandomIds(config(), 24, 8);
  const at::Tensor expected = OracleLogits(config(), rounded, ids);
  const at::Tensor paged = InPieces(Serving(ComputeType::kBFloat16), ids, {9, 1});
  EXPECT_EQ(paged.scalar_type(), at::kFloat);
  EXPECT_LE(RelativeError(paged, expected), 0.03);
  EXPECT_LE(RelativeError(Dense(ComputeType::kBFloat16, ids), expected), 0.03);
}

// Only the cache rounds here, once per element.
TEST_P(DecoderTest, RoundedCacheUnderFloat32Weights) {
  if (config().experts.n_routed_experts > 0) {
    GTEST_SKIP() << "rounding may change the choice of an expert, which no tolerance covers";
  }
  // Rounded to 2^-9 of a number, and to 1/254 and 1/14 of the largest of its group.
  for (const auto& [format, most] : {std::pair{CacheFormat::kBFloat16, 0.01},
                                     {CacheFormat::kInt8, 0.03},
                                     {CacheFormat::kInt4, 0.5}}) {
    SCOPED_TRACE(Name(format));
    Served served = Serving();
    served.cache_format = format;
    const std::vector<int64_t> ids = RandomIds(config(), 24, 9);
    const at::Tensor paged = InPieces(served, ids, {9, 1});
    const double error = RelativeError(paged, OracleLogits(config(), weights_, ids));
    EXPECT_LE(error, most);
    EXPECT_GE(error, 1e-5);  // it does round
    // Evaluation rounds the same numbers, of which float32's own rounding moves one in thousands.
    const Decoder decoder(config(), Cast(weights_, at::kFloat), ComputeType::kFloat32, format);
    EXPECT_LE(RelativeError(decoder.Forward(ToTensor(ids).unsqueeze(0))[0], paged), 0.2 * error);
  }
}

TEST_P(DecoderTest, OnlyTheWantedLogitsAreComputed) {
  const std::vector<int64_t> ids = RandomIds(config(), 3, 10);
  const auto rows = [&](const std::vector<int64_t>& wanted) {
    return StepRunner(Serving(), 1).Step({{0, ids}}, wanted);
  };
  const at::Tensor all = rows({0, 1, 2});
  EXPECT_EQ(rows({}).sizes(), (std::vector<int64_t>{0, config().vocab_size}));
  EXPECT_TRUE(at::equal(rows({2, 0}), at::stack({all[2], all[0]})));
}

// Controls: a cache row that is stale, or shared by two positions, shows in the logits.

TEST_P(DecoderTest, StaleOrSharedCacheRowIsDetected) {
  const std::vector<int64_t> ids = RandomIds(config(), 12, 11);
  const at::Tensor dense = Dense(ComputeType::kFloat32, ids);
  const std::vector<int64_t> prompt(ids.begin(), ids.end() - 1);
  const auto last = [&](const auto& damage) {
    StepRunner runner(Serving(), 1);
    runner.Step({{0, prompt}});
    for (int64_t layer = 0; layer < config().num_hidden_layers; ++layer) {
      damage(runner, layer);
    }
    return LargestDifference(runner.Step({{0, {ids.back()}}})[0], dense[11]);
  };
  EXPECT_LE(last([](StepRunner&, int64_t) {}), kLogits);
  EXPECT_GE(last([](StepRunner& runner, int64_t layer) {
              runner.CacheRow(layer, 0, 3).copy_(runner.CacheRow(layer, 0, 7));
            }),
            1e-4);
  EXPECT_GE(last([](StepRunner& runner, int64_t layer) { runner.CacheRow(layer, 0, 5).zero_(); }),
            1e-4);
}

INSTANTIATE_TEST_SUITE_P(EveryOption, DecoderTest, testing::ValuesIn(EveryOption()),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(EveryOptionOfExperts, DecoderTest,
                         testing::ValuesIn(EveryOptionOfExperts()),
                         testing::PrintToStringParamName());

// Lengths of sequences in a step: two of up to 4,096 positions, a third one for itself, one longer
// than all that is attended at once, and a short one.
TEST(TensorModel, LongSequencesInBatchesEqualSingleSequences) {
  for (const AttentionKind kind : {AttentionKind::kGqa, AttentionKind::kMla}) {
    ModelConfig config = SmallModel(kind);
    config.num_hidden_layers = 1;
    if (kind == AttentionKind::kMla) config.kv_lora_rank.resize(1);
    config.position_embedding = PositionEmbedding::kSinusoidal;
    config.max_position_embeddings = 8300;
    const Weights weights = RandomWeights(config, 3);
    const Served served{.config = config, .weights = weights, .compute = ComputeType::kFloat64};
    const std::vector<int64_t> lengths = {8290, 3000, 2500, 2100, 20};
    StepRunner together(served, std::ssize(lengths));
    std::vector<NewTokens> prompts, next;
    std::vector<at::Tensor> alone;
    for (int64_t s = 0; s < std::ssize(lengths); ++s) {
      prompts.push_back({s, RandomIds(config, lengths[s], 7 + s)});
      next.push_back({s, RandomIds(config, 2, 70 + s)});
      StepRunner runner(served, 1);
      runner.Step({{0, prompts[s].ids}}, {});
      alone.push_back(runner.Step({{0, next[s].ids}}));
    }
    together.Step(prompts, {});
    EXPECT_LE(LargestDifference(together.Step(next), at::cat(alone)), kExact) << Name(kind);
  }
}

// Some tokens of a step by expanded attention, others reduced, whose caches are the same.
TEST(CpuModel, ExpandsThePromptFromAPositionOn) {
  constexpr int64_t kExpandFrom = 5, kPrompt = 20;
  ModelConfig config = SmallModel(AttentionKind::kMla);
  config.kv_lora_rank = {19, 40};
  for (const auto& [decoupled, compute] : {std::pair{false, ComputeType::kFloat32},
                                           {true, ComputeType::kFloat32},
                                           {true, ComputeType::kBFloat16}}) {
    if (decoupled) {
      config.position_embedding = PositionEmbedding::kRope;
      config.qk_rope_head_dim = 6;
      config.kv_a_layernorm = true;
    }
    ASSERT_THAT(ReducedForms(config), testing::Each(ReducedForm::kFactored));
    const Weights weights = Cast(RandomWeights(config, 21), ToScalarType(compute));
    const Served reduced{.config = config,
                         .weights = weights,
                         .compute = compute,
                         .cache_format = compute == ComputeType::kFloat32 ? CacheFormat::kFloat32
                                                                          : CacheFormat::kBFloat16};
    Served expanding = reduced;
    expanding.expand_from = kExpandFrom;
    const Decoder exact(config, Cast(weights, at::kDouble), ComputeType::kFloat64);
    const std::vector<int64_t> one = RandomIds(config, 30, 22), two = RandomIds(config, 9, 23);
    const auto part = [](const std::vector<int64_t>& ids, int64_t begin, int64_t end) {
      return std::vector<int64_t>(ids.begin() + begin, ids.begin() + end);
    };
    const auto expect_near = [&](const at::Tensor& logits, const std::vector<int64_t>& ids,
                                 int64_t begin, int64_t end) {
      const at::Tensor all = exact.Forward(ToTensor(ids).unsqueeze(0))[0];
      const at::Tensor expected = all.narrow(0, begin, end - begin);
      if (compute == ComputeType::kFloat32) {
        EXPECT_LE(LargestDifference(logits, expected), kLogits);
      } else {
        EXPECT_LE(RelativeError(logits, expected), 0.03);  // as BFloat16IsNearFloat64
      }
    };
    StepRunner runner(expanding, 2, kPrompt);
    const at::Tensor first = runner.Step({{0, part(one, 0, 11)}});
    expect_near(first, one, 0, 11);
    const at::Tensor alike = StepRunner(reduced, 1).Step({{0, part(one, 0, 11)}});
    EXPECT_TRUE(at::equal(first.narrow(0, 0, kExpandFrom), alike.narrow(0, 0, kExpandFrom)));
    EXPECT_FALSE(at::equal(first, alike));  // vanilla rounds elsewhere
    const at::Tensor second =
        runner.Step({{1, part(two, 0, 3)}, {0, part(one, 11, 22)}, {1, part(two, 3, 8)}});
    expect_near(second.narrow(0, 0, 3), two, 0, 3);
    expect_near(second.narrow(0, 3, 11), one, 11, 22);
    expect_near(second.narrow(0, 14, 5), two, 3, 8);

    // The same bits one token at a time: a function of the position alone.
    StepRunner slow(expanding, 1, kPrompt);
    for (int64_t p = 0; p < 22; ++p) {
      const at::Tensor row = slow.Step({{0, part(one, p, p + 1)}})[0];
      EXPECT_TRUE(at::equal(row, p < 11 ? first[p] : second[p - 8])) << p;
    }
    // Generated tokens attend reduced at any position.
    StepRunner generated(expanding, 1, /*prompt=*/0);
    EXPECT_TRUE(at::equal(generated.Step({{0, part(one, 0, 11)}}), alike));
  }
}

TEST(CpuModel, ExpandsWhereLayersGainByIt) {
  ModelConfig config = SmallModel(AttentionKind::kMla);
  config.max_position_embeddings = 1 << 14;
  config.position_embedding = PositionEmbedding::kNone;
  const auto expand_from = [&](std::vector<int64_t> ranks, std::optional<int64_t> asked) {
    config.kv_lora_rank = std::move(ranks);
    kernels::ThreadPool pool(1);
    return cpu::PackWeights(config, Cast(RandomWeights(config, 24), at::kFloat),
                            WeightFormat::kFloat32, asked, pool)
        .expand_from;
  };
  EXPECT_EQ(expand_from({1, 2}, {}), std::nullopt);  // premultiplied
  EXPECT_EQ(expand_from({1, 2}, 5), std::nullopt);
  EXPECT_EQ(expand_from({1, 40}, 5), 5);
  EXPECT_EQ(expand_from({1, 40}, kNeverExpand), std::nullopt);
  EXPECT_EQ(expand_from({1, 40}, config.max_position_embeddings), std::nullopt);
  ASSERT_NE(expand_from({40, 40}, {}), std::nullopt);
  ASSERT_NE(expand_from({80, 80}, {}), std::nullopt);
  EXPECT_LE(*expand_from({80, 80}, {}), *expand_from({40, 40}, {}));
}

TEST(Decoder, ForwardIsDifferentiableInEveryWeight) {
  for (NamedConfig named : EachKind()) {
    ModelConfig& config = named.config;
    config.vocab_size = 5;
    config.hidden_size = 4;
    config.intermediate_size = 3;
    config.num_attention_heads = 2;
    config.num_key_value_heads = config.attention == AttentionKind::kGqa ? 1 : 2;
    config.head_dim = 2;
    config.max_position_embeddings = 4;
    if (config.attention == AttentionKind::kMla) config.kv_lora_rank = {3, 2};
    const Weights weights = RandomWeights(config, 12);
    const at::Tensor ids = ToTensor(std::vector<int64_t>{4, 0, 1, 3, 2, 2, 0, 4}).view({2, 4});
    const at::Tensor direction = Normal(13).Tensor({2, 4, 5});
    std::vector<at::Tensor> leaves;
    for (const auto& [name, tensor] : weights) leaves.push_back(tensor);
    const Decoder decoder(config, weights, ComputeType::kFloat64);
    ExpectGradients(leaves, [&] { return (decoder.Forward(ids) * direction).sum(); });
  }
}

TEST(Decoder, ParameterCountIsThatOfTheWeights) {
  for (const NamedConfig& named : EveryOption()) {
    int64_t count = 0;
    for (const auto& [name, tensor] : RandomWeights(named.config, 14)) count += tensor.numel();
    EXPECT_EQ(ParameterCount(named.config), count) << named.name;
    if (named.config.experts.n_routed_experts == 0) {
      EXPECT_EQ(ActiveParameterCount(named.config), count) << named.name;
    }
  }
}

// Two layers of 6 experts, of which a token chooses 2, and one of 5, of which it chooses 3.
TEST(Decoder, ATokenDoesNotUseTheExpertsThatItDoesNotChoose) {
  std::map<std::string, int64_t> unused;
  for (const NamedConfig& named : EveryOption()) {
    unused[named.name] = ParameterCount(named.config) - ActiveParameterCount(named.config);
  }
  EXPECT_EQ(unused.at("GqaExperts"), 2 * 4 * 3 * 24 * 11);
  EXPECT_EQ(unused.at("MlaExperts"), 2 * 3 * 24 * 9);
}

TEST(Decoder, LongerThanTheContextIsRefused) {
  const ModelConfig config = SmallModel(AttentionKind::kMha);
  const Decoder decoder(config, RandomWeights(config, 15), ComputeType::kFloat64);
  const at::Tensor ids = at::zeros({1, config.max_position_embeddings + 1}, at::kLong);
  EXPECT_ANY_THROW(decoder.Forward(ids));
}

TEST(Decoder, DropoutActsInTrainingOnly) {
  const ModelConfig config = SmallModel(AttentionKind::kMha);
  const Decoder decoder(config, RandomWeights(config, 16), ComputeType::kFloat64);
  const at::Tensor ids = ToTensor(RandomIds(config, 20, 17)).unsqueeze(0);
  const at::Tensor plain = decoder.Forward(ids);
  Dropout none(0, 1), some(0.5, 1), again(0.5, 1);
  EXPECT_TRUE(at::equal(decoder.Forward(ids, &none), plain));
  const at::Tensor dropped = decoder.Forward(ids, &some);
  EXPECT_GE(RelativeError(dropped, plain), kWrong);
  EXPECT_TRUE(at::equal(decoder.Forward(ids, &again), dropped));  // the same seed
  EXPECT_FALSE(at::equal(decoder.Forward(ids, &some), dropped));  // the next draw
}

TEST(Dropout, KeepsTheMeanAndDropsTheGivenFraction) {
  const at::Tensor ones = at::ones({100, 1001}, at::kDouble);
  Dropout dropout(0.25, 2);
  const at::Tensor out = dropout.Apply(ones);
  // 100,100 draws: four standard deviations of the fraction are 0.0055.
  EXPECT_NEAR((out == 0).to(at::kDouble).mean().item<double>(), 0.25, 0.0055);
  EXPECT_LE(LargestDifference(out.masked_select(out != 0), at::scalar_tensor(1 / 0.75)), 1e-7);
  EXPECT_TRUE(at::equal(Dropout(0, 3).Apply(ones), ones));
}

// Published layouts, permuted at load: the oracle computes in the layout of the file.

struct Layout {
  std::string name;
  ModelConfig config;
};

std::vector<Layout> Layouts() {
  std::vector<Layout> layouts;
  for (const NamedConfig& named : EveryOption()) {
    const bool grouped = named.config.attention == AttentionKind::kGqa;
    const bool rotary = named.config.position_embedding == PositionEmbedding::kRope;
    for (const bool contiguous : {false, true}) {
      for (const bool halves : {false, true}) {
        if ((contiguous && !grouped) || (halves && !rotary) || (!contiguous && !halves)) continue;
        Layout& layout = layouts.emplace_back(Layout{named.name, named.config});
        if (contiguous) {
          layout.name += "Contiguous";
          layout.config.head_grouping = HeadGrouping::kContiguous;
        }
        if (halves) {
          layout.name += "Halves";
          layout.config.rope_interleave = false;
        }
      }
    }
  }
  return layouts;
}

TEST(DecoderImport, FileLayoutsAreComputedAsTheyMean) {
  const std::vector<Layout> layouts = Layouts();
  ASSERT_GE(layouts.size(), 7u);
  for (const auto& [name, config] : layouts) {
    SCOPED_TRACE(name);
    const Weights weights = Cast(RandomWeights(config, 18), at::kFloat);
    const TempDir directory;
    SaveCheckpoint(directory.path(), config, weights);
    const Checkpoint loaded = LoadCheckpoint(directory.path(), TensorFormat::kFloat32);
    EXPECT_EQ(loaded.config.head_grouping, HeadGrouping::kModular);
    EXPECT_TRUE(loaded.config.rope_interleave);

    const std::vector<int64_t> ids = RandomIds(config, 20, 19);
    const at::Tensor expected = OracleLogits(config, weights, ids);
    const Decoder decoder(loaded.config, loaded.weights, ComputeType::kFloat64);
    EXPECT_LE(RelativeError(decoder.Forward(ToTensor(ids).unsqueeze(0))[0], expected), kExact);
    const Served served{.config = loaded.config, .weights = loaded.weights};
    EXPECT_LE(LargestDifference(InPieces(served, ids, {8, 1}), expected), kLogits);

    // Control: read without the permutation, the same numbers are another model. With one group
    // both groupings are the same.
    if (config.num_key_value_heads == 1) continue;
    const Decoder wrong(loaded.config, weights, ComputeType::kFloat64);
    EXPECT_GE(RelativeError(wrong.Forward(ToTensor(ids).unsqueeze(0))[0], expected), kWrong);
  }
}

// A trained model of another family, decoded as an independent implementation did.

std::filesystem::path StoriesDirectory() { return SharedData() / "stories260K"; }

// Takes little-endian values from the front of a file's bytes.
class BinaryReader {
 public:
  explicit BinaryReader(std::string bytes) : bytes_(std::move(bytes)) {}

  int32_t Int() {
    int32_t value;
    Take(&value, sizeof(value));
    return value;
  }
  at::Tensor Floats(std::vector<int64_t> shape) {
    at::Tensor tensor = at::empty(shape, at::kFloat);
    Take(tensor.data_ptr<float>(), tensor.nbytes());
    return tensor;
  }
  std::string String(size_t size) {
    std::string text(size, '\0');
    Take(text.data(), size);
    return text;
  }

 private:
  void Take(void* out, size_t size) {
    static_assert(std::endian::native == std::endian::little);
    if (size > bytes_.size() - next_) throw std::runtime_error("the file is too short");
    std::memcpy(out, bytes_.data() + next_, size);
    next_ += size;
  }

  std::string bytes_;
  size_t next_ = 0;
};

// llama2.c's layout, as the data's README gives it.
std::pair<ModelConfig, Weights> ReadLlama2c(const std::filesystem::path& file) {
  BinaryReader in(ReadFile(file));
  ModelConfig config;
  config.attention = AttentionKind::kGqa;
  config.hidden_size = in.Int();
  config.intermediate_size = in.Int();
  config.num_hidden_layers = in.Int();
  config.num_attention_heads = in.Int();
  config.num_key_value_heads = in.Int();
  const int32_t vocab = in.Int();
  config.vocab_size = std::abs(vocab);
  config.tie_word_embeddings = vocab > 0;
  config.max_position_embeddings = in.Int();
  config.head_dim = config.hidden_size / config.num_attention_heads;
  config.head_grouping = HeadGrouping::kContiguous;
  config.position_embedding = PositionEmbedding::kRope;

  const int64_t layers = config.num_hidden_layers, width = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  const int64_t kv_width = config.num_key_value_heads * config.head_dim;
  Weights weights;
  const auto read_layers = [&](const std::string& name, std::vector<int64_t> shape) {
    shape.insert(shape.begin(), layers);
    const at::Tensor all = in.Floats(shape);
    for (int64_t layer = 0; layer < layers; ++layer) {
      weights["model.layers." + std::to_string(layer) + "." + name + ".weight"] = all[layer];
    }
  };
  weights["model.embed_tokens.weight"] = in.Floats({config.vocab_size, width});
  read_layers("input_layernorm", {width});
  read_layers("self_attn.q_proj", {width, width});
  read_layers("self_attn.k_proj", {kv_width, width});
  read_layers("self_attn.v_proj", {kv_width, width});
  read_layers("self_attn.o_proj", {width, width});
  read_layers("post_attention_layernorm", {width});
  read_layers("mlp.gate_proj", {inner, width});
  read_layers("mlp.down_proj", {width, inner});
  read_layers("mlp.up_proj", {inner, width});
  weights["model.norm.weight"] = in.Floats({width});
  if (!config.tie_word_embeddings) {
    in.Floats({2, config.max_position_embeddings, config.head_dim / 2});  // unused rotary tables
    weights["lm_head.weight"] = in.Floats({config.vocab_size, width});
  }
  return {config, weights};
}

std::vector<std::string> ReadPieces(const std::filesystem::path& file, int64_t count) {
  BinaryReader in(ReadFile(file));
  in.Int();  // length of the longest
  std::vector<std::string> pieces;
  for (int64_t i = 0; i < count; ++i) {
    in.Floats({1});  // score
    const int32_t length = in.Int();
    pieces.push_back(in.String(length));
  }
  return pieces;
}

// The text of tokens that follow the begin token.
std::string JoinPieces(const std::vector<std::string>& pieces, const std::vector<int64_t>& tokens) {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::string piece = pieces[tokens[i]];
    if (i == 0 && piece.starts_with(' ')) piece.erase(0, 1);
    if (piece.size() == 6 && piece.starts_with("<0x")) {
      piece = std::string(1, static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16)));
    }
    text += piece;
  }
  return text;
}

TEST(DecoderImport, Stories260KDecodesAsPublished) {
  const std::filesystem::path data = StoriesDirectory();
  if (!std::filesystem::exists(data / "stories260K.bin")) {
    GTEST_SKIP() << "no " << data.string() << "; set TRIPTYCH_SHARED_DATA to the folder that holds "
                 << "stories260K";
  }
  const auto [config, weights] = ReadLlama2c(data / "stories260K.bin");
  const TempDir directory;
  SaveCheckpoint(directory.path(), config, weights);
  const Checkpoint loaded = LoadCheckpoint(directory.path(), TensorFormat::kFloat32);

  constexpr int64_t kBegin = 1;
  StepRunner runner({.config = loaded.config, .weights = loaded.weights}, 1);
  std::vector<int64_t> tokens = {kBegin};
  for (int step = 0; step < 256; ++step) {
    tokens.push_back(runner.Step({{0, {tokens.back()}}})[0].argmax().item<int64_t>());
  }
  const std::vector<int64_t> generated(tokens.begin() + 1, tokens.end());
  const std::vector<std::string> pieces = ReadPieces(data / "tok512.bin", config.vocab_size);
  EXPECT_EQ(JoinPieces(pieces, generated) + "\n", ReadFile(data / "expected_greedy_256.txt"));

  // The dense forward chooses the same at every position.
  const std::vector<int64_t> inputs(tokens.begin(), tokens.end() - 1);
  const Decoder decoder(loaded.config, loaded.weights, ComputeType::kFloat32);
  const at::Tensor dense = decoder.Forward(ToTensor(inputs).unsqueeze(0))[0];
  EXPECT_TRUE(at::equal(dense.argmax(-1), ToTensor(generated)));
}

}  // namespace
}  // namespace triptych::decoder_test
