#include "engine/decoder/convert_weights.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "engine/attention/algebra.h"
#include "engine/checkpoint/config/config_file.h"
#include "engine/decoder/conversion_rules.h"
#include "engine/decoder/converted_source.h"
#include "engine/decoder/decoder.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/weights.h"
#include "engine/decoder/write_weights.h"
#include "engine/loading/loaded_model.h"
#include "tests/support/oracle.h"
#include "tests/support/random_model.h"
#include "tests/support/recording_sink.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"
#include "tests/support/tokenizer.h"

namespace triptych::convert_weights_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Conversions that lose nothing differ by rounding only: float64 and logits of order 1.
constexpr double kRounding = 1e-11;
// A mistake is detected if its error is far above this.
constexpr double kWrong = 1e-2;

Checkpoint RandomCheckpoint(const ModelConfig& config, uint64_t seed = 7) {
  return {.config = config, .weights = RandomWeights(config, seed)};
}

Checkpoint RandomCheckpoint(AttentionKind kind, bool bias = false) {
  ModelConfig config = SmallModel(kind);
  config.attention_bias = bias;
  return RandomCheckpoint(config);
}

// Checkpoints of many widths, every second one with biases.
std::vector<Checkpoint> RandomCheckpoints(uint64_t seed) {
  std::vector<Checkpoint> checkpoints;
  for (const HeadShape& shape : RandomHeadShapes(12, seed)) {
    ModelConfig config = SmallModel(shape);
    config.attention_bias = checkpoints.size() % 2 == 1;
    checkpoints.push_back(RandomCheckpoint(config, seed + 1));
  }
  return checkpoints;
}

std::string Describe(const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config;
  return testing::PrintToString(HeadShape{config.hidden_size, config.num_attention_heads,
                                          config.num_key_value_heads, config.head_dim}) +
         (config.attention_bias ? ", with biases" : "");
}

// [1, 12, vocab] float64
at::Tensor Logits(const Checkpoint& checkpoint) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 12; ++i) ids.push_back((i * 37 + 11) % checkpoint.config.vocab_size);
  return Decoder(checkpoint.config, checkpoint.weights, ComputeType::kFloat64)
      .Forward(ToTensor(ids).unsqueeze(0));
}

Checkpoint ToMha(const Checkpoint& from) {
  return Convert(from, {.attention = AttentionKind::kMha}, "from");
}
Checkpoint ToGqa(const Checkpoint& from, int64_t groups,
                 std::optional<ConversionMethod> method = {}) {
  return Convert(from, {.attention = AttentionKind::kGqa, .groups = groups, .method = method},
                 "from");
}
Checkpoint Pooled(const Checkpoint& from, int64_t groups) {
  return ToGqa(from, groups, ConversionMethod::kPool);
}
// 0: the full rank
Checkpoint ToMla(const Checkpoint& from, int64_t rank = 0) {
  return Convert(from, {.attention = AttentionKind::kMla, .rank = rank}, "from");
}

void ExpectSameWeights(const Checkpoint& actual, const Checkpoint& expected) {
  EXPECT_EQ(checkpoint::ToJson(actual.config), checkpoint::ToJson(expected.config));
  ASSERT_EQ(actual.weights.size(), expected.weights.size());
  for (const auto& [name, tensor] : expected.weights) {
    EXPECT_LT(LargestDifference(actual.weights.at(name), tensor), 1e-14) << name;
  }
}

// ---- Grouped heads -----------------------------------------------------------------------------

TEST(Conversion, GqaToMhaIsExact) {
  for (const Checkpoint& from : RandomCheckpoints(1)) {
    SCOPED_TRACE(Describe(from));
    const Checkpoint mha = ToMha(from);
    EXPECT_EQ(mha.config.attention, AttentionKind::kMha);
    EXPECT_EQ(mha.config.num_key_value_heads, mha.config.num_attention_heads);
    EXPECT_LT(LargestDifference(Logits(mha), Logits(from)), kRounding);
  }
}

TEST(Conversion, GqaToMhaAndBackIsTheSameModel) {
  for (const Checkpoint& from : RandomCheckpoints(3)) {
    SCOPED_TRACE(Describe(from));
    const int64_t groups = from.config.num_key_value_heads;
    Checkpoint expected = from;
    expected.config.attention = AttentionKind::kGqa;  // MHA comes back as its case G = H
    ExpectSameWeights(Pooled(ToMha(from), groups), expected);
    // In a basis of its own it computes the same.
    const Checkpoint back = ToGqa(ToMha(from), groups);
    EXPECT_EQ(checkpoint::ToJson(back.config), checkpoint::ToJson(expected.config));
    EXPECT_LT(LargestDifference(Logits(back), Logits(from)), kRounding);
  }
}

// Positions enter each key head alike.
TEST(Conversion, RotaryHeadsAreRepeatedExactly) {
  for (const bool bias : {false, true}) {
    ModelConfig config = SmallModel(AttentionKind::kGqa);
    config.position_embedding = PositionEmbedding::kRope;
    config.attention_bias = bias;
    const Checkpoint gqa = RandomCheckpoint(config);
    const Checkpoint mha = ToMha(gqa);
    EXPECT_LT(LargestDifference(Logits(mha), Logits(gqa)), kRounding);
    ExpectSameWeights(ToGqa(mha, config.num_key_value_heads), gqa);
    ExpectSameWeights(Pooled(mha, config.num_key_value_heads), gqa);
  }
}

TEST(Conversion, MhaToGqaPoolsHeadsOfEqualResidue) {
  const Checkpoint mha = RandomCheckpoint(AttentionKind::kMha);
  const int64_t heads = mha.config.num_attention_heads, d = mha.config.head_dim;
  const int64_t groups = heads / 2;
  const Checkpoint gqa = Pooled(mha, groups);
  const std::string name = "model.layers.0.self_attn.k_proj.weight";
  const at::Tensor& from = mha.weights.at(name);
  const at::Tensor& to = gqa.weights.at(name);
  for (int64_t g = 0; g < groups; ++g) {
    const at::Tensor mean =
        (from.narrow(0, g * d, d) + from.narrow(0, (g + groups) * d, d)) / 2;  // h = g, g + G
    EXPECT_LT(LargestDifference(to.narrow(0, g * d, d), mean), 1e-15) << g;
  }
}

TEST(Conversion, PoolingInStepsIsPoolingAtOnce) {
  const Checkpoint mha = RandomCheckpoint(SmallModel({24, 12, 12, 2}));
  ExpectSameWeights(Pooled(Pooled(mha, 6), 2), Pooled(mha, 2));
  EXPECT_GT(RelativeError(Logits(Pooled(mha, 2)), Logits(mha)), kWrong);  // it is lossy
}

// At G = H there is nothing to share: the model stays, whatever its biases.
TEST(Conversion, AsManyGroupsAsHeadsIsExact) {
  for (const Checkpoint& from : RandomCheckpoints(13)) {
    SCOPED_TRACE(Describe(from));
    const Checkpoint same = ToGqa(from, from.config.num_key_value_heads);
    EXPECT_EQ(same.config.attention, AttentionKind::kGqa);
    EXPECT_LT(LargestDifference(Logits(same), Logits(from)), kRounding);
  }
}

// The rows of head h after those of its group, h mod `groups`, were projected onto their best d
// directions: the eigenvectors of the Gram matrix of what they make of inputs with covariance C.
at::Tensor ProjectedHeads(const at::Tensor& rows, int64_t groups, int64_t d,
                          const at::Tensor& covariance) {
  at::Tensor projected = at::zeros_like(rows);
  const int64_t heads = rows.size(0) / d;
  for (int64_t g = 0; g < groups; ++g) {
    std::vector<int64_t> of_group;
    for (int64_t h = g; h < heads; h += groups) {
      for (int64_t i = 0; i < d; ++i) of_group.push_back(h * d + i);
    }
    const at::Tensor index = ToTensor(of_group), stack = rows.index_select(0, index);
    const at::Tensor gram = at::mm(at::mm(stack, covariance), stack.t());
    const at::Tensor q = std::get<1>(at::linalg_eigh(gram));  // ascending
    const at::Tensor best = q.narrow(1, q.size(1) - d, d);
    projected.index_copy_(0, index, at::mm(best, at::mm(best.t(), stack)));
  }
  return projected;
}

// Against the oracle's plain loops: the grouped model computes what the source does whose keys and
// values were projected onto the groups' bases, all biases as they were. Sources of G0 < H groups
// too, and every layer by its own inputs' covariance.
TEST(Conversion, ACommonBasisComputesWhatItsProjectedSourceDoes) {
  for (const HeadShape& shape : {HeadShape{24, 4, 4, 6}, HeadShape{17, 6, 6, 3},
                                 HeadShape{24, 8, 4, 5}, HeadShape{13, 8, 8, 2}}) {
    for (const bool bias : {false, true}) {
      ModelConfig config = SmallModel(shape);
      config.attention_bias = bias;
      const Checkpoint from = RandomCheckpoint(config, 21);
      std::vector<at::Tensor> covariances;
      Normal normal(22);
      for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
        const at::Tensor samples = normal.Tensor({3 * shape.width, shape.width}) *
                                   at::pow(0.8, at::arange(shape.width, at::kDouble));
        covariances.push_back(at::mm(samples.t(), samples));
      }
      for (int64_t groups = 1; groups < shape.groups; groups *= 2) {
        if (shape.groups % groups != 0) continue;
        for (const bool whitened : {false, true}) {
          SCOPED_TRACE(Describe(from) + ", " + std::to_string(groups) + " groups" +
                       (whitened ? ", whitened" : ""));
          Checkpoint projected = from;
          for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
            for (const char* name : {"self_attn.k_proj.weight", "self_attn.v_proj.weight"}) {
              at::Tensor& rows = projected.weights.at(LayerPrefix(layer) + name);
              rows =
                  ProjectedHeads(rows, groups, shape.d,
                                 whitened ? covariances[layer] : at::eye(shape.width, at::kDouble));
            }
          }
          std::vector<int64_t> ids;
          for (int64_t i = 0; i < 9; ++i) ids.push_back((i * 37 + 11) % config.vocab_size);
          const Checkpoint gqa = ToGroups(
              from,
              FindGroupBases(from, groups, whitened ? covariances : std::vector<at::Tensor>()));
          EXPECT_EQ(gqa.config.num_key_value_heads, groups);
          const at::Tensor logits = Decoder(gqa.config, gqa.weights, ComputeType::kFloat64)
                                        .Forward(ToTensor(ids).unsqueeze(0))[0];
          const at::Tensor expected =
              ToTensor(oracle::Logits(projected.config, ToArrays(projected.weights), ids));
          EXPECT_LT(LargestDifference(logits, expected), 1e-9);
          EXPECT_GT(RelativeError(logits, Logits(from)[0].narrow(0, 0, 9)), 1e-4);  // it is lossy
        }
      }
    }
  }
}

TEST(Conversion, LikeHeadsTogetherAreTheSameModel) {
  int moved = 0;
  std::vector<Checkpoint> sources = RandomCheckpoints(31);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    sources.push_back(RandomCheckpoint(SmallModel(HeadShape{24, 12, 6, 3}), seed));
  }
  for (const Checkpoint& from : sources) {
    const int64_t stored = from.config.num_key_value_heads;
    for (int64_t groups = 1; groups < stored; ++groups) {
      if (stored % groups != 0) continue;
      SCOPED_TRACE(Describe(from) + ", " + std::to_string(groups) + " groups");
      const Checkpoint like = WithLikeHeadsTogether(from, groups);
      EXPECT_LT(LargestDifference(Logits(like), Logits(from)), kRounding);
      const auto kept = [&](const Checkpoint& model) {
        double sum = 0;
        for (const GroupBases& layer : FindGroupBases(model, groups)) {
          sum += layer.keys.energy_kept() + layer.values.energy_kept();
        }
        return sum;
      };
      EXPECT_GE(kept(like), kept(from) - 1e-12);
      if (kept(like) > kept(from) + 1e-6) ++moved;
    }
  }
  EXPECT_GT(moved, 3);
}

// Heads 0 and 1 are copies, and 2 and 3: not the groups of heads of equal residue.
TEST(Conversion, CopiesFindEachOtherWhereverTheyAre) {
  Checkpoint from = RandomCheckpoint(AttentionKind::kMha);
  const int64_t d = from.config.head_dim;
  ASSERT_EQ(from.config.num_attention_heads, 4);
  for (int64_t layer = 0; layer < from.config.num_hidden_layers; ++layer) {
    for (const char* name : {"self_attn.k_proj.weight", "self_attn.v_proj.weight"}) {
      at::Tensor& rows = from.weights.at(LayerPrefix(layer) + name);
      const at::Tensor heads = rows.unflatten(0, {4, d});
      rows = at::cat({heads[0], heads[0], heads[2], heads[2]});
    }
  }
  EXPECT_LT(LargestDifference(Logits(ToGqa(from, 2)), Logits(from)), kRounding);
  // The control: bases of the heads as they stand.
  EXPECT_GT(LargestDifference(Logits(ToGroups(from, FindGroupBases(from, 2))), Logits(from)),
            kWrong);
}

// Biases of keys are gone, and those of values are in b_O.
TEST(Conversion, ACommonBasisLeavesNoBiasOfKeysAndValues) {
  const Checkpoint gqa = ToGqa(RandomCheckpoint(AttentionKind::kMha, /*bias=*/true), 2);
  for (const char* name : {"self_attn.k_proj.bias", "self_attn.v_proj.bias"}) {
    EXPECT_EQ(gqa.weights.at(LayerPrefix(1) + name).abs().max().item<double>(), 0) << name;
  }
}

TEST(Conversion, TheDefaultMethodIsTheBestThereIs) {
  ModelConfig plain = SmallModel(AttentionKind::kMha), rotary = plain;
  rotary.position_embedding = PositionEmbedding::kRope;
  for (const AttentionKind kind : {AttentionKind::kGqa, AttentionKind::kMla}) {
    EXPECT_EQ(MethodOf({.attention = kind}, plain, false), ConversionMethod::kWeight);
    EXPECT_EQ(MethodOf({.attention = kind}, plain, true), ConversionMethod::kActivation);
    EXPECT_EQ(MethodOf({.attention = kind, .method = ConversionMethod::kWeight}, plain, true),
              ConversionMethod::kWeight);
  }
  for (const bool has_text : {false, true}) {
    EXPECT_EQ(MethodOf({.attention = AttentionKind::kGqa}, rotary, has_text),
              ConversionMethod::kPool);
  }
  const Checkpoint mha = RandomCheckpoint(AttentionKind::kMha);
  ExpectSameWeights(ToGqa(mha, 2), ToGqa(mha, 2, ConversionMethod::kWeight));
  EXPECT_LT(RelativeError(Logits(ToGqa(mha, 2)), Logits(mha)),
            RelativeError(Logits(Pooled(mha, 2)), Logits(mha)));
}

// Control: the grouping of other families' checkpoints, head h from group h / (H/G), is another
// model.
TEST(Conversion, ContiguousRepetitionIsDetected) {
  const Checkpoint gqa = RandomCheckpoint(AttentionKind::kGqa);
  Checkpoint wrong = ToMha(gqa);
  const int64_t d = gqa.config.head_dim;
  const int64_t shared = gqa.config.num_attention_heads / gqa.config.num_key_value_heads;
  for (int64_t layer = 0; layer < gqa.config.num_hidden_layers; ++layer) {
    for (const char* name : {"self_attn.k_proj.weight", "self_attn.v_proj.weight"}) {
      const std::string whole = LayerPrefix(layer) + name;
      wrong.weights[whole] =
          gqa.weights.at(whole).unflatten(0, {-1, d}).repeat_interleave(shared, 0).flatten(0, 1);
    }
  }
  EXPECT_GT(RelativeError(Logits(wrong), Logits(gqa)), kWrong);
}

// ---- Latents -----------------------------------------------------------------------------------

TEST(Conversion, ToMlaAtFullRankIsExact) {
  for (const Checkpoint& from : RandomCheckpoints(5)) {
    SCOPED_TRACE(Describe(from));
    const int64_t full = FullRank(from.config);
    EXPECT_EQ(full, std::min(2 * from.config.num_key_value_heads * from.config.head_dim,
                             from.config.hidden_size));
    for (const int64_t rank : {int64_t{0}, full}) {
      const Checkpoint mla = ToMla(from, rank);
      EXPECT_EQ(mla.config.attention, AttentionKind::kMla);
      for (int64_t layer = 0; layer < mla.config.num_hidden_layers; ++layer) {
        EXPECT_EQ(CacheRowElements(mla.config, layer), full);
      }
      EXPECT_LT(LargestDifference(Logits(mla), Logits(from)), kRounding);
    }
  }
}

// engine/definitions.md#cache-bytes: 2D elements in a row become r = D.
TEST(Conversion, MhaToMlaHalvesTheCacheAndLosesNothing) {
  for (const HeadShape& shape :
       {HeadShape{24, 4, 4, 6}, HeadShape{15, 5, 5, 3}, HeadShape{7, 1, 1, 7}}) {
    const Checkpoint mha = RandomCheckpoint(SmallModel(shape));
    const Checkpoint mla = ToMla(mha);
    EXPECT_EQ(2 * CacheRowElements(mla.config, 0), CacheRowElements(mha.config, 0));
    EXPECT_LT(LargestDifference(Logits(mla), Logits(mha)), kRounding);
  }
}

TEST(Conversion, PathsFromMhaOverGqaToMlaMeet) {
  for (const Checkpoint& from : RandomCheckpoints(7)) {
    SCOPED_TRACE(Describe(from));
    const Checkpoint gqa = ToGqa(ToMha(from), from.config.num_key_value_heads);
    const Checkpoint mla = ToMla(gqa);
    EXPECT_LT(LargestDifference(Logits(mla), Logits(from)), kRounding);
    // MHA of repeated heads has no more to it than its groups: it needs no larger latent.
    EXPECT_LT(LargestDifference(Logits(ToMla(ToMha(gqa), FullRank(gqa.config))), Logits(from)),
              kRounding);
  }
}

TEST(Conversion, TruncationLosesMoreTheLowerTheRank) {
  const Checkpoint mha = RandomCheckpoint(AttentionKind::kMha);
  const at::Tensor exact = Logits(mha);
  double previous = 0;
  for (int64_t rank = FullRank(mha.config) - 2; rank >= 2; rank /= 2) {
    const double error = RelativeError(Logits(ToMla(mha, rank)), exact);
    EXPECT_GT(error, previous) << rank;
    previous = error;
  }
}

// A layer at its full rank is exact whatever the others are cut to.
TEST(Conversion, EachLayerHasTheRankItIsGiven) {
  for (const Checkpoint& from : RandomCheckpoints(9)) {
    SCOPED_TRACE(Describe(from));
    const std::vector<KeyValueSvd> svds = DecomposeLayers(from);
    const int64_t full = FullRank(from.config);
    const Checkpoint mla = ToLatent(from, svds, {(full + 1) / 2, full});
    EXPECT_EQ(mla.config.kv_lora_rank, (std::vector<int64_t>{(full + 1) / 2, full}));
    EXPECT_EQ(CacheRowElements(mla.config, 0), (full + 1) / 2);
    EXPECT_LT(LargestDifference(FullKeyValue(mla, 1), FullKeyValue(from, 1)), kRounding);
    const at::Tensor exact = FullKeyValue(from, 0);
    EXPECT_LE(RelativeError(FullKeyValue(mla, 0), exact),
              std::sqrt(1 - svds[0].energy()[(full + 1) / 2 - 1].item<double>()) + kRounding);
    // It is a model like any other: its file says what it is.
    const TempDir directory;
    SaveCheckpoint(directory.path(), mla.config, mla.weights);
    EXPECT_EQ(checkpoint::ToJson(LoadCheckpoint(directory.path(), TensorFormat::kFloat32).config),
              checkpoint::ToJson(mla.config));
  }
}

TEST(Conversion, CovariancesChooseTheFactorsOfTheirLayer) {
  const Checkpoint from = RandomCheckpoint(AttentionKind::kGqa);
  const int64_t width = from.config.hidden_size;
  // Layer 0 reads only the first half, layer 1 only the second.
  const at::Tensor first = at::diag(at::cat({at::ones({width / 2}), at::zeros({width / 2})}));
  const std::vector<at::Tensor> covariances = {first, first.flip({0, 1})};
  const std::vector<KeyValueSvd> svds = DecomposeLayers(from, covariances);
  const Checkpoint mla = ToLatent(from, svds, {width / 2, width / 2});
  for (int64_t layer = 0; layer < 2; ++layer) {
    const at::Tensor exact = FullKeyValue(from, layer), made = FullKeyValue(mla, layer);
    const auto half = [&](const at::Tensor& rows) {
      return rows.narrow(1, layer * width / 2, width / 2);
    };
    // 1e-5: the root of the weight of directions that the inputs never take.
    EXPECT_LE(RelativeError(half(made), half(exact)), 1e-5);
    EXPECT_GE(RelativeError(made, exact), kWrong);
  }
}

TEST(Conversion, FullKeyValueIsWhatEveryHeadReads) {
  for (const Checkpoint& from : RandomCheckpoints(11)) {
    SCOPED_TRACE(Describe(from));
    const int64_t heads = from.config.num_attention_heads, d = from.config.head_dim;
    const at::Tensor full = FullKeyValue(from, 1);
    ASSERT_EQ(full.sizes(), (std::vector<int64_t>{2 * heads * d, from.config.hidden_size}));
    const at::Tensor& k = from.weights.at("model.layers.1.self_attn.k_proj.weight");
    const at::Tensor& v = from.weights.at("model.layers.1.self_attn.v_proj.weight");
    const Checkpoint mla = ToMla(from);
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t g = h % from.config.num_key_value_heads;
      EXPECT_TRUE(at::equal(full.narrow(0, h * d, d), k.narrow(0, g * d, d)));
      EXPECT_TRUE(at::equal(full.narrow(0, (heads + h) * d, d), v.narrow(0, g * d, d)));
    }
    EXPECT_LT(LargestDifference(FullKeyValue(mla, 1), full), kRounding);
    EXPECT_TRUE(at::equal(FullKeyValue(ToMha(from), 1), full));
  }
}

TEST(Conversion, WeightsKeepTheirDtype) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    Checkpoint from = RandomCheckpoint(AttentionKind::kGqa, /*bias=*/true);
    from.weights = Cast(from.weights, dtype);
    for (const Checkpoint& to : {ToMha(from), ToGqa(from, 1), ToMla(from), ToMla(from, 3)}) {
      EXPECT_EQ(to.weights.size(), ExpectedTensors(to.config).size());
      for (const TensorSpec& spec : ExpectedTensors(to.config)) {
        EXPECT_EQ(to.weights.at(spec.name).scalar_type(), dtype) << spec.name;
        EXPECT_EQ(to.weights.at(spec.name).sizes(), spec.shape) << spec.name;
      }
    }
  }
}

TEST(Conversion, TheSourceStaysAsItIs) {
  const Checkpoint from = RandomCheckpoint(AttentionKind::kGqa, /*bias=*/true);
  const Checkpoint again = RandomCheckpoint(AttentionKind::kGqa, /*bias=*/true);
  ToMha(from), ToGqa(from, 1), ToMla(from), ToMla(from, 3);
  ExpectSameWeights(from, again);
}

// ---- Layer by layer ----------------------------------------------------------------------------

TEST(ConvertedSourceTest, IsWhatConvertMakes) {
  const auto check = [](const ModelConfig& config, const ConversionSpec& to) {
    SCOPED_TRACE(checkpoint::ToJson(config) + std::string(Name(to.attention)) +
                 std::to_string(to.rank));
    const TempDir directory;
    SaveCheckpoint(directory.path() / "model", config, RandomWeights(config, 8));
    const checkpoint::OpenedCheckpoint opened =
        checkpoint::OpenCheckpoint(directory.path() / "model");
    const Checkpoint expected = Convert(ReadCheckpoint(opened, TensorFormat::kFloat32), to, "from");
    for (const TensorFormat format : {TensorFormat::kFloat32, TensorFormat::kBFloat16}) {
      ConvertedSource source(std::make_unique<CheckpointReader>(opened, TensorFormat::kFloat32), to,
                             format, "from");
      EXPECT_EQ(checkpoint::ToJson(source.config()), checkpoint::ToJson(expected.config));
      Weights taken;
      for (const std::string& prefix : PartPrefixes(source.config())) {
        if (const auto layer = LayerOf(prefix); layer == 1) {
          taken.merge(source.Take(AttentionPrefix(*layer)));
          taken.merge(source.Take(MlpPrefix(*layer)));
          taken.merge(source.Take(prefix + "input_layernorm"));
          taken.merge(source.Take(prefix + "post_attention_layernorm"));
        } else {
          taken.merge(source.Take(prefix));
        }
      }
      ASSERT_EQ(taken.size(), expected.weights.size());
      for (const auto& [name, tensor] : expected.weights) {
        ASSERT_TRUE(taken.contains(name)) << name;
        EXPECT_TRUE(at::equal(taken.at(name), tensor.to(ToScalarType(format)))) << name;
      }
    }
    // The shapes known before a tensor is read.
    const auto shapes = [](const ModelConfig& made) {
      std::vector<std::tuple<std::string, std::vector<int64_t>>> all;
      for (const TensorSpec& spec : ExpectedTensors(made)) {
        all.emplace_back(spec.name, spec.shape);
      }
      return all;
    };
    EXPECT_EQ(shapes(ConvertedShape(opened.config, to)), shapes(expected.config));
  };
  ModelConfig experts = SmallExpertsModel(AttentionKind::kGqa);
  experts.experts.sparse_layers = {0, 1};
  check(experts, {.attention = AttentionKind::kMha});
  check(experts, {.attention = AttentionKind::kGqa, .groups = 1});
  check(experts, {.attention = AttentionKind::kMla, .rank = 3});
  ModelConfig normed = SmallModel(AttentionKind::kGqa);
  normed.qk_norm = true;
  check(normed, {.attention = AttentionKind::kMla, .rank = 3});
  normed.position_embedding = PositionEmbedding::kRope;
  normed.rope_interleave = false;
  check(normed, {.attention = AttentionKind::kMla, .rank = 5, .rope_head_dim = 4, .fold = 3});
  for (const AttentionKind kind : {AttentionKind::kMha, AttentionKind::kGqa}) {
    for (const bool bias : {false, true}) {
      ModelConfig config = SmallModel(kind);
      config.attention_bias = bias;
      config.head_grouping = HeadGrouping::kContiguous;  // permuted when it is read
      check(config, {.attention = AttentionKind::kMha});
      check(config, {.attention = AttentionKind::kGqa, .groups = 1});
      check(config, {.attention = AttentionKind::kMla});
      check(config, {.attention = AttentionKind::kMla, .rank = 3});
      config.position_embedding = PositionEmbedding::kRope;
      config.rope_interleave = false;
      check(config, {.attention = AttentionKind::kGqa, .groups = 1});
      check(config, {.attention = AttentionKind::kMla});
      // Which pairs are kept is chosen by all layers together.
      check(config, {.attention = AttentionKind::kMla, .rank = 5, .rope_head_dim = 4, .fold = 3});
    }
  }
}

TEST(ConvertedSourceTest, RefusesWhatConvertRefuses) {
  const ModelConfig config = SmallModel(AttentionKind::kGqa);
  const TempDir directory;
  SaveCheckpoint(directory.path() / "model", config, RandomWeights(config, 8));
  try {
    ConvertedSource(
        std::make_unique<CheckpointReader>(checkpoint::OpenCheckpoint(directory.path() / "model"),
                                           TensorFormat::kFloat32),
        {.attention = AttentionKind::kGqa, .groups = 7}, TensorFormat::kFloat32, "from");
    ADD_FAILURE() << "accepted";
  } catch (const LoadError& e) {
    EXPECT_THAT(e.what(), HasSubstr("from: groups 7 must divide its 2 key/value heads"));
  }
}

// ---- Serving -----------------------------------------------------------------------------------

constexpr int64_t kGenerated = 40;

// A saved model's greedy continuation through the engine, its paged cache and its kernels.
std::shared_ptr<RecordingSink> Serve(const Checkpoint& checkpoint,
                                     const std::optional<ConversionSpec>& at_load = {}) {
  const TempDir directory;
  SaveCheckpoint(directory.path() / "model", checkpoint.config, checkpoint.weights);
  LoadOptions options;
  options.checkpoint = checkpoint::OpenCheckpoint(directory.path() / "model");
  options.backend.kv_cache_bytes = 1 << 20;
  options.backend.block_positions = 4;
  options.conversion = at_load;
  const LoadedModel model = LoadModel(options, std::make_shared<kernels::KernelContext>(1));
  serving::Request request;
  request.id = "r";
  request.prompt = {kBeginToken, 't', 'h', 'e', ' ', 'c', 'a', 't'};
  request.max_new_tokens = kGenerated;
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  const auto sink = std::make_shared<RecordingSink>();
  model.engine->Submit(request, sink);
  while (model.engine->Step()) {
  }
  EXPECT_EQ(sink->tokens.size(), static_cast<size_t>(kGenerated));
  return sink;
}

// The float64 model's own greedy choices after Serve's prompt. Fails where one is open, by section
// 8: then the test needs another seed.
std::vector<int32_t> ClearGreedyTokens(const Checkpoint& checkpoint) {
  const Decoder decoder(checkpoint.config, checkpoint.weights, ComputeType::kFloat64);
  std::vector<int64_t> ids = {kBeginToken, 't', 'h', 'e', ' ', 'c', 'a', 't'};
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < kGenerated; ++i) {
    const at::Tensor logits = decoder.Forward(ToTensor(ids).unsqueeze(0))[0][-1];
    const auto [best, index] = logits.topk(2);
    EXPECT_GT((best[0] - best[1]).item<double>(), 1e-3) << "token " << i;
    ids.push_back(index[0].item<int64_t>());
    tokens.push_back(static_cast<int32_t>(ids.back()));
  }
  return tokens;
}

TEST(Conversion, ServedReducedItGeneratesWhatItsSourceDoes) {
  for (const bool bias : {false, true}) {
    SCOPED_TRACE(bias ? "with biases" : "");
    const Checkpoint gqa = RandomCheckpoint(AttentionKind::kGqa, bias);
    const std::vector<int32_t> expected = ClearGreedyTokens(gqa);
    const auto plain = Serve(gqa);
    EXPECT_EQ(plain->tokens, expected);
    for (const Checkpoint& same : {ToMla(gqa), ToMha(gqa), ToMla(ToMha(gqa))}) {
      const auto served = Serve(same);
      EXPECT_EQ(served->tokens, expected);
      EXPECT_EQ(served->text, plain->text);
    }
    EXPECT_NE(Serve(ToMla(gqa, 2))->tokens, expected);  // cut to a sixth, it is another model
  }
}

// The paged cache and its kernels against the float64 decoder, made before or at load.
TEST(Conversion, ServedInACommonBasisItGeneratesWhatTheDenseModelDoes) {
  for (const bool bias : {false, true}) {
    SCOPED_TRACE(bias ? "with biases" : "");
    ModelConfig config = SmallModel(AttentionKind::kMha);
    config.attention_bias = bias;
    const Checkpoint mha = RandomCheckpoint(config, 10);
    for (const int64_t groups : {1, 2, 4}) {
      const Checkpoint gqa = ToGqa(mha, groups);
      const std::vector<int32_t> expected = ClearGreedyTokens(gqa);
      EXPECT_EQ(Serve(gqa)->tokens, expected) << groups;
      EXPECT_EQ(
          Serve(mha, ConversionSpec{.attention = AttentionKind::kGqa, .groups = groups})->tokens,
          expected)
          << groups;
      if (groups < 4) {
        EXPECT_NE(Serve(Pooled(mha, groups))->tokens, expected) << groups;
      }
    }
  }
}

TEST(Conversion, ServedWithARankForEachLayer) {
  const Checkpoint mha = RandomCheckpoint(AttentionKind::kMha);
  const Checkpoint mla = ToLatent(mha, DecomposeLayers(mha), {5, 19});
  EXPECT_EQ(Serve(mla)->tokens, ClearGreedyTokens(mla));
}

// ---- Refusals ----------------------------------------------------------------------------------

std::string Refusal(const Checkpoint& from, const ConversionSpec& to) {
  return RefusalOf<LoadError>([&] { Convert(from, to, "the-model"); });
}

TEST(ConversionRefusal, GroupsMustDivideTheHeadsThereAre) {
  const Checkpoint mha = RandomCheckpoint(AttentionKind::kMha);
  for (const int64_t groups : {-1, 0, 3, 5, 8}) {
    EXPECT_THAT(Refusal(mha, {.attention = AttentionKind::kGqa, .groups = groups}),
                AllOf(HasSubstr("the-model"), HasSubstr("groups " + std::to_string(groups)),
                      HasSubstr("4 key/value heads")));
  }
  // Groups are of what is stored: a model of two is not one of four.
  EXPECT_THAT(Refusal(RandomCheckpoint(AttentionKind::kGqa),
                      {.attention = AttentionKind::kGqa, .groups = 4}),
              AllOf(HasSubstr("groups 4"), HasSubstr("2 key/value heads")));
}

TEST(ConversionRefusal, RankIsAtMostTheFullOne) {
  for (const AttentionKind kind : {AttentionKind::kMha, AttentionKind::kGqa}) {
    const Checkpoint from = RandomCheckpoint(kind);
    const int64_t full = FullRank(from.config);
    for (const int64_t rank : {int64_t{-1}, full + 1}) {
      EXPECT_THAT(Refusal(from, {.attention = AttentionKind::kMla, .rank = rank}),
                  AllOf(HasSubstr("the-model"), HasSubstr("rank " + std::to_string(rank)),
                        HasSubstr("allowed: 1 to " + std::to_string(full))));
    }
  }
}

TEST(ConversionRefusal, LatentsStayLatents) {
  for (const AttentionKind kind : {AttentionKind::kMha, AttentionKind::kGqa, AttentionKind::kMla}) {
    EXPECT_THAT(Refusal(RandomCheckpoint(AttentionKind::kMla), {.attention = kind, .groups = 1}),
                AllOf(HasSubstr("the-model"), HasSubstr("\"mla\""), HasSubstr("\"mha\", \"gqa\"")));
  }
}

TEST(ConversionRefusal, RotaryKeysHaveNoCommonBasis) {
  Checkpoint rotary = RandomCheckpoint(AttentionKind::kMha);
  rotary.config.position_embedding = PositionEmbedding::kRope;
  for (const ConversionMethod method : {ConversionMethod::kWeight, ConversionMethod::kActivation}) {
    EXPECT_EQ(Refusal(rotary, {.attention = AttentionKind::kGqa, .groups = 2, .method = method}),
              "the-model: position_embedding is \"rope\": method \"" + std::string(Name(method)) +
                  "\" needs keys that are not rotated; allowed: \"pool\"");
  }
  for (const std::optional<ConversionMethod> method :
       {std::optional<ConversionMethod>(), {ConversionMethod::kPool}}) {
    EXPECT_EQ(Refusal(rotary, {.attention = AttentionKind::kGqa, .groups = 2, .method = method}),
              "accepted");
  }
}

TEST(ConversionRefusal, NonFiniteTensorIsNamed) {
  for (const std::string name : {"model.layers.1.self_attn.v_proj.weight", "model.norm.weight"}) {
    for (const double value : {std::nan(""), std::numeric_limits<double>::infinity()}) {
      Checkpoint from = RandomCheckpoint(AttentionKind::kGqa);
      from.weights[name] = from.weights[name].clone();
      from.weights[name].view({-1})[5] = value;
      for (const AttentionKind kind :
           {AttentionKind::kMha, AttentionKind::kGqa, AttentionKind::kMla}) {
        EXPECT_THAT(Refusal(from, {.attention = kind, .groups = 1}),
                    AllOf(HasSubstr("the-model"), HasSubstr(name), HasSubstr("not finite")));
      }
    }
  }
}

}  // namespace
}  // namespace triptych::convert_weights_test
