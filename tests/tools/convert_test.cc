#include "engine/tools/convert.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "engine/checkpoint/config/config_file.h"
#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/decoder/conversion_rules.h"
#include "engine/decoder/convert_weights.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/write_weights.h"
#include "engine/tools/calibration.h"
#include "engine/tools/digest.h"
#include "engine/tools/evaluate.h"
#include "engine/tools/input_moments.h"
#include "engine/tools/latent_cut.h"
#include "tests/support/held_out.h"
#include "tests/support/process.h"
#include "tests/support/published_checkpoints.h"
#include "tests/support/random_model.h"
#include "tests/support/refusal.h"
#include "tests/support/small_gguf.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"
#include "tests/support/tokenizer_files.h"

namespace triptych::tools::convert_test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::Each;
using testing::Ge;
using testing::HasSubstr;
using testing::StartsWith;

// Tolerance of a mean loss for float32 products: each logit is off by 1e-5 at most
// (engine/definitions.md#tolerances).
constexpr double kLossRounding = 1e-5;
// Half of the last of the four printed decimals of a loss.
constexpr double kPrinted = 0.5e-4;

// Random words from few letters, unlike a random model's own text.
std::string Words(int count) {
  std::mt19937_64 generator(1);
  std::string text;
  for (int i = 0; i < count; ++i) {
    for (uint64_t letters = 1 + generator() % 6; letters > 0; --letters) {
      text += static_cast<char>('a' + generator() % 9);
    }
    text += i % 7 == 6 ? '\n' : ' ';
  }
  return text;
}

// A model with sharp queries, and a first layer whose keys and values are nearly of rank 4.
Checkpoint Source(AttentionKind kind) {
  Checkpoint checkpoint{.config = SmallModel(kind), .weights = {}};
  checkpoint.weights = RandomWeights(checkpoint.config, 1);
  Normal normal(2);
  for (int64_t layer = 0; layer < checkpoint.config.num_hidden_layers; ++layer) {
    at::Tensor& q = checkpoint.weights.at(LayerPrefix(layer) + "self_attn.q_proj.weight");
    q = 4 * q;
  }
  const at::Tensor narrow = at::mm(normal.Weight(checkpoint.config.hidden_size, 4),
                                   normal.Weight(4, checkpoint.config.hidden_size));
  for (const char* name : {"self_attn.k_proj.weight", "self_attn.v_proj.weight"}) {
    at::Tensor& w = checkpoint.weights.at(LayerPrefix(0) + name);
    w = at::mm(w, narrow) + 0.05 * w;
  }
  return checkpoint;
}

// |difference|^2 / |exact|^2 of [W_K; W_V] over inputs of this covariance, summed over keys and
// values.
double BalancedError(const at::Tensor& made, const at::Tensor& exact,
                     const at::Tensor& covariance) {
  const auto energy = [&](const at::Tensor& rows) {
    return (at::mm(rows, covariance) * rows).sum().item<double>();
  };
  double error = 0;
  for (int64_t half = 0; half < 2; ++half) {
    const at::Tensor of = exact.chunk(2)[half];
    error += energy(made.chunk(2)[half] - of) / energy(of);
  }
  return error;
}

class ConvertTest : public testing::Test {
 protected:
  ConvertTest() {
    WriteFile(text_, Words(1200));
    for (const AttentionKind kind : {AttentionKind::kMha, AttentionKind::kGqa}) {
      const Checkpoint source = Source(kind);
      SaveCheckpoint(dir_.path() / Name(kind), source.config, source.weights);
    }
  }

  ConvertOptions Options(AttentionKind from, AttentionKind to) const {
    ConvertOptions options;
    options.from = dir_.path() / Name(from);
    options.to = dir_.path() / "out";
    options.attention = to;
    return options;
  }
  ConvertOptions ToMla(AttentionKind from = AttentionKind::kMha) const {
    return Options(from, AttentionKind::kMla);
  }
  ConvertOptions Calibrated() const {
    ConvertOptions options = ToMla();
    options.calibrate = text_;
    return options;
  }

  // Converts into an empty directory and loads the result.
  Checkpoint Converted(const ConvertOptions& options) const {
    std::filesystem::remove_all(options.to);
    ConvertModel(options);
    return LoadCheckpoint(options.to, TensorFormat::kFloat32);
  }
  static Checkpoint Loaded(const std::filesystem::path& directory) {
    return LoadCheckpoint(directory, TensorFormat::kFloat32);
  }
  static Decoder MakeDecoder(const Checkpoint& checkpoint) {
    return Decoder(checkpoint.config, checkpoint.weights, ComputeType::kFloat32);
  }
  double Loss(const Checkpoint& checkpoint) const {
    return HeldOutLoss(MakeDecoder(checkpoint), TestCorpus(text_, 0.1));
  }
  // The loss that decides on ranks.
  double ChoosingLoss(const Checkpoint& checkpoint) const {
    return MeanLoss(MakeDecoder(checkpoint),
                    ChoosingWindows(TestCorpus(text_, kDefaultHeldOut), checkpoint.config));
  }
  std::string Card() const { return ReadFile(dir_.path() / "out" / "README.md"); }

  std::set<std::string> Everything() const {
    std::set<std::string> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_.path())) {
      all.insert(entry.path());
    }
    return all;
  }
  // The message of the failure, which must leave no files behind.
  std::string Refusal(const ConvertOptions& options) const {
    const std::set<std::string> before = Everything();
    const std::string message = RefusalOf<std::runtime_error>([&] { ConvertModel(options); });
    EXPECT_EQ(Everything(), before);
    return message;
  }

  const TempDir dir_;
  const std::filesystem::path text_ = dir_.path() / "text.txt";
};

int64_t Sum(const std::vector<int64_t>& ranks) {
  int64_t sum = 0;
  for (const int64_t rank : ranks) sum += rank;
  return sum;
}

// ---- Results, and the card ----------------------------------------------------

TEST_F(ConvertTest, WithNothingToSaveItLosesNothing) {
  for (const AttentionKind kind : {AttentionKind::kMha, AttentionKind::kGqa}) {
    const Checkpoint mla = Converted(ToMla(kind));
    EXPECT_EQ(mla.config.attention, AttentionKind::kMla);
    EXPECT_THAT(mla.config.kv_lora_rank, Each(FullRank(Loaded(dir_.path() / Name(kind)).config)));
    EXPECT_NEAR(Loss(mla), Loss(Loaded(dir_.path() / Name(kind))), kLossRounding);
  }
  const Checkpoint mha = Converted(Options(AttentionKind::kGqa, AttentionKind::kMha));
  EXPECT_NEAR(Loss(mha), Loss(Loaded(dir_.path() / "gqa")), kLossRounding);
}

// The numbers in the rows of the card's table of layers.
std::vector<std::vector<double>> TableOf(const std::string& card) {
  std::vector<std::vector<double>> rows;
  std::istringstream lines(card.substr(card.find("|------:|")));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| ")) continue;
    std::replace(line.begin(), line.end(), '|', ' ');
    std::istringstream fields(line);
    rows.emplace_back();
    for (double field; fields >> field;) rows.back().push_back(field);
  }
  return rows;
}

TEST_F(ConvertTest, AGgufFileIsASourceAsOthersAre) {
  ConvertOptions options = ToMla();
  options.from = dir_.path() / "m.gguf";
  WriteFile(options.from, SmallGguf());
  const Checkpoint before = Loaded(options.from);
  const Checkpoint after = Converted(options);
  EXPECT_EQ(after.config.attention, AttentionKind::kMla);
  const Corpus corpus(text_, *checkpoint::LoadTokenizer(options.to), 0.1, after.config,
                      options.to.string());
  EXPECT_NEAR(HeldOutLoss(after, corpus), HeldOutLoss(before, corpus), kLossRounding);
  const std::string text = Words(100);
  EXPECT_EQ(checkpoint::LoadTokenizer(options.to)->Encode(text),
            checkpoint::LoadTokenizer(options.from)->Encode(text));

  options.to = dir_.path() / "other";
  WriteFile(options.from, UnwritableGguf());
  EXPECT_THAT(Refusal(options), HasSubstr("tokenizer.chat_template is 1048577 bytes"));
}

TEST_F(ConvertTest, TheCardSaysWhatEachLayerLost) {
  ConvertOptions options = ToMla();
  options.rank = 7;
  const Checkpoint to = Converted(options), from = Loaded(options.from);
  EXPECT_THAT(Card(), AllOf(StartsWith("# out\n\n| | |\n|---|---|\n"),
                            HasSubstr("| made from | mha |\n"), HasSubstr("MHA to MLA"),
                            HasSubstr("| layer | energy kept | weight error | row before | row "
                                      "after |\n|------:|"),
                            HasSubstr("96 to 14 elements (384 to 56 bytes in float32)"),
                            Not(HasSubstr("loss"))));
  const std::vector<std::vector<double>> table = TableOf(Card());
  ASSERT_EQ(table.size(), 2u);
  const std::vector<KeyValueSvd> svds = DecomposeLayers(from);
  for (int64_t layer = 0; layer < 2; ++layer) {
    ASSERT_EQ(table[layer].size(), 5u);
    EXPECT_EQ(table[layer][0], layer);
    EXPECT_NEAR(table[layer][1], svds[layer].energy()[6].item<double>(), 0.5e-5);
    const double error = RelativeError(FullKeyValue(to, layer), FullKeyValue(from, layer));
    EXPECT_NEAR(table[layer][2], error, 0.005 * error);
    EXPECT_EQ(table[layer][3], 48);
    EXPECT_EQ(table[layer][4], 7);
  }
}

// The kept and the lost share of the squares add up to one for pooled heads, too.
TEST_F(ConvertTest, TheCardOfPooledHeads) {
  ConvertOptions options = Options(AttentionKind::kMha, AttentionKind::kGqa);
  options.groups = 2;
  options.calibrate = text_;
  options.method = ConversionMethod::kPool;
  const Checkpoint to = Converted(options), from = Loaded(options.from);
  EXPECT_THAT(Card(), AllOf(HasSubstr("MHA to GQA with 2 groups"), HasSubstr("averaged."),
                            HasSubstr("96 to 48 elements")));
  const std::vector<std::vector<double>> table = TableOf(Card());
  ASSERT_EQ(table.size(), 2u);
  for (int64_t layer = 0; layer < 2; ++layer) {
    const at::Tensor exact = FullKeyValue(from, layer), made = FullKeyValue(to, layer);
    EXPECT_NEAR(table[layer][1], (made.square().sum() / exact.square().sum()).item<double>(), 1e-5);
    EXPECT_NEAR(table[layer][2], RelativeError(made, exact), 0.005);
    EXPECT_EQ(table[layer][4], 24);
  }
  options = Options(AttentionKind::kGqa, AttentionKind::kMha);
  Converted(options);
  EXPECT_THAT(Card(), AllOf(HasSubstr("GQA with 2 groups to MHA"), HasSubstr("Heads were repeated"),
                            HasSubstr("48 to 96 elements")));
}

// Factors and ranks are fitted to a text, so it counts as a training text.
TEST_F(ConvertTest, TheConfigNamesTheTextsItWasMadeOf) {
  ConvertOptions options = Calibrated();
  Checkpoint source = Loaded(options.from);
  source.config.training_texts = {{Sha256("another"), 0.5}};
  options.from = dir_.path() / "told";
  SaveCheckpoint(options.from, source.config, source.weights);
  options.held_out = 0.25;
  const std::vector<TrainingText> texts = Converted(options).config.training_texts;
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[0].sha256, Sha256("another"));
  EXPECT_EQ(texts[0].held_out, 0.5);
  EXPECT_EQ(texts[1].sha256, Sha256(ReadFile(text_)));
  EXPECT_EQ(texts[1].held_out, 0.25);
}

// |[W_K; W_V] of heads from a common basis - given| / |given|, and the share of the squares that
// each half keeps, by the projections of engine/definitions.md#pooling-heads-and-a-common-basis.
struct Kept {
  double error = 0;
  double energy = 0;  // of keys and of values, their mean
};
Kept KeptByBasis(const Checkpoint& from, int64_t layer, int64_t groups,
                 const at::Tensor& covariance) {
  const int64_t d = from.config.head_dim;
  double lost = 0, all = 0, energy = 0;
  for (const char* name : {"self_attn.k_proj.weight", "self_attn.v_proj.weight"}) {
    const at::Tensor rows = from.weights.at(LayerPrefix(layer) + name).to(at::kDouble);
    double kept_squares = 0, all_squares = 0;
    for (int64_t g = 0; g < groups; ++g) {
      const at::Tensor stack =
          rows.view({-1, groups, d, rows.size(1)}).select(1, g).reshape({-1, rows.size(1)});
      const auto [squares, q] = at::linalg_eigh(at::mm(at::mm(stack, covariance), stack.t()));
      const at::Tensor best = q.narrow(1, q.size(1) - d, d);
      kept_squares += squares.narrow(0, q.size(1) - d, d).sum().item<double>();
      all_squares += squares.sum().item<double>();
      lost += (at::mm(best, at::mm(best.t(), stack)) - stack).square().sum().item<double>();
    }
    all += rows.square().sum().item<double>();
    energy += kept_squares / all_squares / 2;
  }
  return {.error = std::sqrt(lost / all), .energy = energy};
}

// For some random models like heads together lose less; for others, heads as they stand.
TEST_F(ConvertTest, AGroupsHeadsAreThoseThatLoseLessOnAText) {
  const Corpus corpus = TestCorpus(text_, kDefaultHeldOut);
  int as_they_stand = 0;
  constexpr int kModels = 8;
  for (int seed = 0; seed < kModels; ++seed) {
    const ModelConfig config = SmallModel(AttentionKind::kMha);
    const Checkpoint from{config, Cast(RandomWeights(config, seed), at::kFloat)};
    const std::vector<Window> windows = ChoosingWindows(corpus, config);
    const double together = ChoosingLoss(AsStored(ByCommonBases(from, 2)));
    const double unordered = ChoosingLoss(AsStored(ToGroups(from, FindGroupBases(from, 2))));
    const GroupedByBases better = ByBetterBases(from, 2, {}, windows);
    EXPECT_EQ(ChoosingLoss(better.to), std::min(together, unordered));
    EXPECT_EQ(better.like_together, together <= unordered);
    EXPECT_EQ(ChoosingLoss(ByBetterBases(from, 2, {}, {}).to), together);
    as_they_stand += unordered < together;
  }
  EXPECT_GT(as_they_stand, 0);
  EXPECT_LT(as_they_stand, kModels);
}

// The default is by activation with a text and by weight without; --method overrides it.
TEST_F(ConvertTest, TheCardOfACommonBasis) {
  ConvertOptions options = Options(AttentionKind::kMha, AttentionKind::kGqa);
  options.groups = 2;
  const Checkpoint from = Loaded(options.from);
  const std::vector<at::Tensor> covariances =
      InputCovariances(from, TestCorpus(text_, kDefaultHeldOut));
  const std::vector<Window> windows =
      ChoosingWindows(TestCorpus(text_, kDefaultHeldOut), from.config);
  const at::Tensor unit = at::eye(from.config.hidden_size, at::kDouble);
  for (const bool calibrated : {false, true}) {
    for (const std::optional<ConversionMethod> method : {std::optional<ConversionMethod>(),
                                                         {ConversionMethod::kWeight},
                                                         {ConversionMethod::kActivation}}) {
      if (!calibrated && method == ConversionMethod::kActivation) continue;
      options.calibrate = calibrated ? text_ : "";
      options.method = method;
      const Checkpoint to = Converted(options);
      EXPECT_EQ(to.config.num_key_value_heads, 2);
      const bool activation = calibrated && method != ConversionMethod::kWeight;
      EXPECT_THAT(Card(), AllOf(HasSubstr("MHA to GQA with 2 groups. A common basis for each "
                                          "group"),
                                HasSubstr("96 to 48 elements")));
      EXPECT_EQ(
          Card().find("whitened by each layer's inputs on the training part of `text.txt`.") !=
              std::string::npos,
          activation);
      const std::vector<std::vector<double>> table = TableOf(Card());
      ASSERT_EQ(table.size(), 2u);
      const std::vector<at::Tensor> of = activation ? covariances : std::vector<at::Tensor>();
      const GroupedByBases grouped =
          ByBetterBases(from, 2, of, calibrated ? windows : std::vector<Window>());
      EXPECT_THAT(Card(),
                  HasSubstr(grouped.like_together
                                ? " Heads that have the most in common share a group.\n"
                                : " Heads share groups as they stand, which loses less.\n"));
      const Checkpoint& source = grouped.from;
      for (int64_t layer = 0; layer < 2; ++layer) {
        const Kept kept = KeptByBasis(source, layer, 2, activation ? covariances[layer] : unit);
        EXPECT_NEAR(table[layer][1], kept.energy, 1e-5);
        EXPECT_NEAR(table[layer][2], kept.error, 0.005 * kept.error + 1e-6);
      }
      if (calibrated) {
        std::istringstream line(Card().substr(Card().find(" nats per token") - 6));
        double after = 0;
        line >> after;
        EXPECT_NEAR(after, Loss(to), kPrinted + kLossRounding);
      }
    }
  }
}

// Heads of rotated keys are averaged, and the card gives the reason.
TEST_F(ConvertTest, RotatedKeysArePooled) {
  Checkpoint rotary = Source(AttentionKind::kMha);
  rotary.config.position_embedding = PositionEmbedding::kRope;
  rotary.weights.erase("model.embed_positions.weight");
  ConvertOptions options = Options(AttentionKind::kMha, AttentionKind::kGqa);
  options.from = dir_.path() / "rotary";
  options.groups = 2;
  options.calibrate = text_;
  SaveCheckpoint(options.from, rotary.config, rotary.weights);
  const Checkpoint to = Converted(options);
  EXPECT_THAT(
      Card(),
      HasSubstr("Heads of equal residue were averaged: rotated keys have no common basis."));
  options.method = ConversionMethod::kPool;
  const Checkpoint pooled = Converted(options);
  for (const auto& [name, tensor] : pooled.weights) {
    EXPECT_TRUE(at::equal(to.weights.at(name), tensor)) << name;
  }
  std::filesystem::remove_all(options.to);
  options.method = ConversionMethod::kActivation;
  EXPECT_EQ(Refusal(options), options.from.string() +
                                  ": position_embedding is \"rope\": method \"activation\" needs "
                                  "keys that are not rotated; allowed: \"pool\"");
}

// Rotated keys with a text and a budget get the best width of decoupled keys.
TEST_F(ConvertTest, TheWidthOfDecoupledKeysIsTheBest) {
  Checkpoint rotary = Source(AttentionKind::kGqa);
  rotary.config.position_embedding = PositionEmbedding::kRope;
  rotary.weights.erase("model.embed_positions.weight");
  ConvertOptions options = Calibrated();
  options.from = dir_.path() / "rotary";
  SaveCheckpoint(options.from, rotary.config, rotary.weights);
  const int64_t all = rotary.config.num_key_value_heads * rotary.config.head_dim;
  EXPECT_EQ(DecoupledWidths(rotary.config), (std::vector<int64_t>{2, 4, 8, all}));

  options.bytes_per_position = 2 * 4 * 14;  // 14 elements in each of two layers, in float32
  const Checkpoint chosen = Converted(options);
  EXPECT_LE(ElementsPerPosition(chosen.config), 28);
  for (const int64_t width : {2, 4, 8, 12}) {
    options.rope_head_dim = width;
    const Checkpoint other = Converted(options);
    EXPECT_EQ(other.config.qk_rope_head_dim, width);
    EXPECT_LE(ChoosingLoss(chosen), ChoosingLoss(other) + kLossRounding) << width;
    if (width == chosen.config.qk_rope_head_dim) {
      EXPECT_EQ(other.config.kv_lora_rank, chosen.config.kv_lora_rank);
    }
  }
  // With all keys kept and values at full rank, the conversion is exact.
  options.rope_head_dim.reset();
  options.bytes_per_position.reset();
  options.max_loss_increase = 0;
  EXPECT_LE(ChoosingLoss(Converted(options)), ChoosingLoss(Loaded(options.from)) + kLossRounding);

  // One element next to the narrowest keys is the minimum, so no other width is tried.
  options.max_loss_increase = 100;
  testing::internal::CaptureStderr();
  EXPECT_EQ(ElementsPerPosition(Converted(options).config), 2 * (2 + 1));
  const int64_t parameters = ParameterCount(Loaded(options.to).config);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("decoupled keys of width 2: 6 elements per position, " +
                              std::to_string(parameters) + " parameters\n"),
                    Not(HasSubstr("width 4"))));
  std::filesystem::remove_all(options.to);
  options.max_loss_increase.reset();
  options.bytes_per_position = 2 * 4 * 2;
  EXPECT_EQ(Refusal(options),
            "--bytes-per-position 16 leaves no latent next to decoupled keys of width 2");
}

// Normed keys: a row has their inverse norms, in float32, and a budget counts them.
TEST_F(ConvertTest, LatentsOfNormedKeysHaveInverseNorms) {
  Checkpoint normed = Source(AttentionKind::kGqa);
  normed.config.qk_norm = true;
  Normal normal(3);
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (const char* name : {"q_norm.weight", "k_norm.weight"}) {
      normed.weights[AttentionPrefix(layer) + name] =
          normal.Tensor({normed.config.head_dim}, 0.3) + 1;
    }
  }
  ConvertOptions options = ToMla();
  options.from = dir_.path() / "normed";
  SaveCheckpoint(options.from, normed.config, normed.weights);
  const Checkpoint exact = Converted(options);
  EXPECT_TRUE(exact.config.qk_norm);
  EXPECT_EQ(exact.config.num_key_value_heads, 2);
  EXPECT_NEAR(Loss(exact), Loss(Loaded(options.from)), kLossRounding);
  EXPECT_THAT(Card(), HasSubstr("48 to 52 elements (192 to 208 bytes in float32)"));
  for (const std::vector<double>& layer : TableOf(Card())) EXPECT_LT(layer[2], 1e-6);

  for (const auto& [dtype, bytes] : {std::pair(TensorFormat::kFloat32, 2 * (4 * 10 + 2 * 4)),
                                     std::pair(TensorFormat::kBFloat16, 2 * (2 * 10 + 2 * 4))}) {
    options.dtype = dtype;
    options.bytes_per_position = bytes;
    const ModelConfig config = Converted(options).config;
    EXPECT_EQ(Sum(config.kv_lora_rank), 20);
    const CacheFormat format = DefaultCacheFormat(dtype);
    EXPECT_EQ(CacheRowBytes(config, 0, format) + CacheRowBytes(config, 1, format), bytes);
  }
}

// The losses are those of the stored, rounded model.
TEST_F(ConvertTest, TheCardSaysWhatItCostOnTheText) {
  for (const TensorFormat dtype : {TensorFormat::kFloat32, TensorFormat::kBFloat16}) {
    ConvertOptions options = Calibrated();
    options.rank = 3;
    options.dtype = dtype;
    const Checkpoint to = Converted(options);
    EXPECT_EQ(to.config.torch_dtype, dtype);
    const std::string card = Card();
    EXPECT_THAT(card, HasSubstr("whitened by each layer's inputs on the training part of "
                                "`text.txt`"));
    const size_t line = card.find("Held-out loss on `text.txt`: ");
    ASSERT_NE(line, std::string::npos) << card;
    std::istringstream losses(card.substr(card.find(": ", line) + 2));
    double before, after;
    std::string word;
    losses >> before >> word >> after;
    EXPECT_NEAR(before, Loss(Loaded(options.from)), kPrinted + kLossRounding);
    EXPECT_NEAR(after, Loss(to), kPrinted + kLossRounding);
    EXPECT_GT(std::abs(after - before), 10 * kPrinted);
    const std::vector<std::vector<double>> table = TableOf(card);
    for (int64_t layer = 0; layer < 2; ++layer) {
      const double error =
          RelativeError(FullKeyValue(to, layer), FullKeyValue(Loaded(options.from), layer));
      EXPECT_NEAR(table[layer][2], error, 0.005 * error);
    }
  }
}

// ---- The form of DeepSeek-V3 -----------------------------------------------------------------

class ConvertFormatTest : public ConvertTest {
 protected:
  ConvertFormatTest() {
    from_.config = SmallModel(AttentionKind::kGqa);
    from_.config.position_embedding = PositionEmbedding::kRope;
    from_.config.norm = NormKind::kRmsNorm;
    from_.config.norm_bias = from_.config.mlp_bias = from_.config.attention_bias = false;
    from_.config.mlp = MlpKind::kSwiglu;
    from_.config.hidden_act = HiddenAct::kSilu;
    from_.weights = RandomWeights(from_.config, 1);
    Save();
  }

  void Save() const {
    SaveCheckpoint(Options().from, from_.config, from_.weights, "",
                   {{"tokenizer.json", ByteLevelJson().dump()},
                    {"generation_config.json", R"({"eos_token_id": 10})"}});
  }
  ConvertOptions Options() const {
    ConvertOptions options = ToMla();
    options.from = dir_.path() / "rotary";
    options.format = checkpoint::ConfigForm::kDeepseek;
    return options;
  }
  // The tokens that follow "Once", each the likeliest.
  static std::vector<int64_t> Continuation(const Checkpoint& model) {
    const Decoder decoder = MakeDecoder(model);
    std::vector<int64_t> ids = {'O', 'n', 'c', 'e'};
    while (ids.size() < 30) {
      const at::Tensor logits = decoder.Forward(ToTensor(ids).unsqueeze(0))[0];
      ids.push_back(logits[-1].argmax().item<int64_t>());
    }
    return ids;
  }

  Checkpoint from_;
};

TEST_F(ConvertFormatTest, DeepseekIsTheSameModelAsTriptychs) {
  ConvertOptions options = Options();
  options.calibrate = text_;
  options.rank = 7;
  options.rope_head_dim = 4;
  const Checkpoint written = Converted(options);
  EXPECT_THAT(ReadFile(options.to / "config.json"), HasSubstr("\"model_type\": \"deepseek_v3\""));
  EXPECT_THAT(Card(),
              HasSubstr("Written as deepseek_v3, which norms latents: each has 9 elements"));
  EXPECT_THAT(Card(),
              HasSubstr("Cache per position: 48 to 26 elements (192 to 104 bytes in float32)"));
  EXPECT_TRUE(written.config.kv_a_layernorm);
  EXPECT_NE(checkpoint::LoadTokenizer(options.to), nullptr);

  options.format = checkpoint::ConfigForm::kTriptych;
  const Checkpoint plain = Converted(options);
  EXPECT_FALSE(plain.config.kv_a_layernorm);
  EXPECT_NEAR(Loss(written), Loss(plain), kLossRounding);
  EXPECT_EQ(Continuation(written), Continuation(plain));

  // The model in Triptych's form, as after training, in the other form.
  std::filesystem::rename(options.to, dir_.path() / "mla");
  options = Options();
  options.from = dir_.path() / "mla";
  const Checkpoint again = Converted(options);
  EXPECT_EQ(checkpoint::ToJson(again.config), checkpoint::ToJson(written.config));
  for (const auto& [name, tensor] : written.weights) {
    EXPECT_TRUE(at::equal(again.weights.at(name), tensor)) << name;
  }
}

TEST_F(ConvertFormatTest, WhatHasNoPlaceInDeepseekIsRefused) {
  ConvertOptions options = Options();
  options.attention = AttentionKind::kMha;
  EXPECT_EQ(Refusal(options), "--format deepseek goes with --attention mla");
  options = ToMla();
  options.format = checkpoint::ConfigForm::kDeepseek;
  options.calibrate = dir_.path() / "none";  // refused before a text is read
  EXPECT_EQ(Refusal(options),
            options.from.string() +
                ": position_embedding is \"learned\", which deepseek_v3 has no place for; allowed: "
                "\"rope\"");
  options = Options();
  std::filesystem::remove(options.from / "tokenizer.json");
  EXPECT_EQ(Refusal(options), options.from.string() +
                                  ": has no tokenizer, so that its tokens are bytes; allowed with "
                                  "--format deepseek: tokenizer.json, tokenizer.model, "
                                  "tokenizer.bin");
  from_.config = WithLatents(from_.config, {5, 5});
  from_.config.num_key_value_heads = from_.config.num_attention_heads;
  from_.config.qk_rope_head_dim = 4;
  from_.weights = RandomWeights(from_.config, 1);
  std::filesystem::remove_all(options.from);
  Save();
  options.rank = 3;
  EXPECT_EQ(Refusal(options), options.from.string() +
                                  ": attention is \"mla\", of which only the form changes; allowed "
                                  "with it: --format, --dtype");
}

// ---- Places and formats ----------------------------------------------------------------------

TEST_F(ConvertTest, StoresInTheSourcesDtypeUnlessAskedForAnother) {
  Checkpoint half = Source(AttentionKind::kMha);
  half.config.torch_dtype = TensorFormat::kBFloat16;
  SaveCheckpoint(dir_.path() / "half", half.config, half.weights);
  ConvertOptions options = ToMla();
  options.from = dir_.path() / "half";
  EXPECT_EQ(Converted(options).config.torch_dtype, TensorFormat::kBFloat16);
  EXPECT_THAT(Card(), HasSubstr("96 to 48 elements (192 to 96 bytes in bfloat16)"));
  options.dtype = TensorFormat::kFloat32;
  EXPECT_EQ(Converted(options).config.torch_dtype, TensorFormat::kFloat32);
}

TEST_F(ConvertTest, TheNameOfADirectoryMayEndInASlash) {
  ConvertOptions options = ToMla();
  options.from += "/";
  options.to += "/";
  Converted(options);
  EXPECT_THAT(Card(), AllOf(StartsWith("# out\n"), HasSubstr("| made from | mha |\n")));
}

TEST_F(ConvertTest, AnEmptyDirectoryIsAPlace) {
  const ConvertOptions options = ToMla();
  std::filesystem::create_directory(options.to);
  ConvertModel(options);
  EXPECT_EQ(Loaded(options.to).config.attention, AttentionKind::kMla);
}

// ---- Ranks -----------------------------------------------------------------------------------

TEST_F(ConvertTest, OneRankInEveryLayer) {
  for (const int64_t rank : {1, 24}) {
    ConvertOptions options = ToMla();
    options.rank = rank;
    EXPECT_THAT(Converted(options).config.kv_lora_rank, Each(rank));
  }
}

TEST_F(ConvertTest, BytesPerPositionAreNotExceededAndGoWhereTheyCount) {
  for (const bool calibrated : {false, true}) {
    for (const TensorFormat dtype : {TensorFormat::kFloat32, TensorFormat::kBFloat16}) {
      for (const int64_t bytes : {8, 67, 100, 1000}) {
        ConvertOptions options = calibrated ? Calibrated() : ToMla();
        options.bytes_per_position = bytes;
        options.dtype = dtype;
        const ModelConfig config = Converted(options).config;
        const std::vector<int64_t>& ranks = config.kv_lora_rank;
        // The rest of the budget is less than another rank.
        EXPECT_EQ(Sum(ranks),
                  std::min<int64_t>(bytes / RowBytes(DefaultCacheFormat(dtype), 1), 48));
        const CacheFormat format = DefaultCacheFormat(dtype);
        EXPECT_LE(CacheRowBytes(config, 0, format) + CacheRowBytes(config, 1, format), bytes);
        EXPECT_THAT(ranks, Each(Ge(1)));
        // The first layer is nearly of rank 4.
        if (bytes == 67) {
          EXPECT_LT(ranks[0], ranks[1]) << Name(dtype);
        }
      }
    }
  }
}

TEST_F(ConvertTest, TheLossGrowsNoMoreThanIsAllowed) {
  const Checkpoint from = Loaded(dir_.path() / "mha");
  const double before = ChoosingLoss(from);
  ConvertOptions options = Calibrated();
  for (const double most : {0.0, 0.002, 0.01}) {
    SCOPED_TRACE(most);
    options.max_loss_increase = most;
    const Checkpoint to = Converted(options);
    EXPECT_LE(ChoosingLoss(to), before + most + kLossRounding);
    if (most == 0) continue;
    EXPECT_LT(Sum(to.config.kv_lora_rank), 48);
    // One rank fewer loses too much.
    const Corpus corpus = TestCorpus(text_, kDefaultHeldOut);
    const std::vector<KeyValueSvd> svds = DecomposeLayers(from, InputCovariances(from, corpus));
    const std::vector<double> weights = Sensitivities(from, svds, corpus);
    const int64_t total = Sum(to.config.kv_lora_rank);
    EXPECT_EQ(AllocateRanks(svds, weights, total), to.config.kv_lora_rank);
    EXPECT_GT(ChoosingLoss(ToLatent(from, svds, AllocateRanks(svds, weights, total - 1))),
              before + most);
  }
  options.max_loss_increase = 100;
  EXPECT_THAT(Converted(options).config.kv_lora_rank, Each(1));
}

// The change of the loss by rounding to bfloat16 counts, up or down.
TEST_F(ConvertTest, TheLossIsThatOfTheStoredModel) {
  ConvertOptions options = Calibrated();
  options.dtype = TensorFormat::kBFloat16;
  const double full = ChoosingLoss(Converted(options)) - ChoosingLoss(Loaded(options.from));
  std::filesystem::remove_all(options.to);
  options.max_loss_increase = full - 10 * kLossRounding;
  EXPECT_THAT(Refusal(options),
              AllOf(StartsWith("--max-loss-increase: a loss of at most 6."),
                    HasSubstr("stored in bfloat16, even the full ranks have 6.")));
  options.max_loss_increase = full + 10 * kLossRounding;
  const double reached = ChoosingLoss(Converted(options)) - ChoosingLoss(Loaded(options.from));
  EXPECT_LE(reached, full + 11 * kLossRounding);
}

TEST_F(ConvertTest, ActivationsLoseLessOfTheLayersInputs) {
  const Checkpoint from = Loaded(dir_.path() / "mha");
  const std::vector<at::Tensor> covariances = InputCovariances(from, TestCorpus(text_, 0.1));
  ConvertOptions options = Calibrated();
  for (const int64_t rank : {3, 8, 16}) {
    options.rank = rank;
    options.method = ConversionMethod::kWeight;
    const Checkpoint by_weight = Converted(options);
    options.method = ConversionMethod::kActivation;
    const Checkpoint by_activation = Converted(options);
    options.method.reset();  // with a text, by activation
    const Checkpoint by_default = Converted(options);
    for (int64_t layer = 0; layer < 2; ++layer) {
      const at::Tensor exact = FullKeyValue(from, layer);
      const auto error = [&](const Checkpoint& made) {
        return BalancedError(FullKeyValue(made, layer), exact, covariances[layer]);
      };
      EXPECT_LT(error(by_activation), 0.9 * error(by_weight)) << rank;
      EXPECT_LT(RelativeError(FullKeyValue(by_weight, layer), exact),
                RelativeError(FullKeyValue(by_activation, layer), exact));
      EXPECT_TRUE(at::equal(FullKeyValue(by_default, layer), FullKeyValue(by_activation, layer)));
    }
  }
}

// ---- Parts -----------------------------------------------------------------------------------

// A layer without effect on the output costs nothing, but keeps the least sensitivity.
TEST_F(ConvertTest, SensitivityIsWhatLosingALayerWouldCost) {
  Checkpoint from = Source(AttentionKind::kMha);
  from.weights.at("model.layers.1.self_attn.o_proj.weight").zero_();
  const Corpus corpus = TestCorpus(text_, 0.1);
  const std::vector<double> sensitivities = Sensitivities(from, DecomposeLayers(from), corpus);
  ASSERT_EQ(sensitivities.size(), 2u);
  EXPECT_GT(sensitivities[0], 0);
  EXPECT_GT(sensitivities[1], 0.005 * sensitivities[0]);
  EXPECT_LT(sensitivities[1], 0.02 * sensitivities[0]);
}

// Layers whose rank is below the quarter that the others are cut to lose only rounding. No
// divergence is divided by that.
TEST_F(ConvertTest, LayersThatLoseNothingCountEqually) {
  Checkpoint from = Source(AttentionKind::kMha);
  for (int64_t layer = 0; layer < from.config.num_hidden_layers; ++layer) {
    for (const char* name : {"self_attn.k_proj.weight", "self_attn.v_proj.weight"}) {
      at::Tensor& weight = from.weights.at(LayerPrefix(layer) + name);
      weight = weight.narrow(0, 0, 1).repeat({weight.size(0), 1});  // rank 1, and 2 together
    }
  }
  const std::vector<KeyValueSvd> svds = DecomposeLayers(from);
  const std::vector<double> sensitivities = Sensitivities(from, svds, TestCorpus(text_, 0.1));
  EXPECT_THAT(sensitivities, testing::Each(1.0));
}

// ---- Refusals --------------------------------------------------------------------------------

TEST_F(ConvertTest, OptionsThatDoNotGoTogetherAreRefused) {
  using Change = std::function<void(ConvertOptions&)>;
  const auto refusal = [&](AttentionKind to, const std::vector<Change>& changes) {
    ConvertOptions options = Options(AttentionKind::kMha, to);
    for (const Change& change : changes) change(options);
    return Refusal(options);
  };
  const Change rank = [](ConvertOptions& o) { o.rank = 4; };
  const Change bytes = [](ConvertOptions& o) { o.bytes_per_position = 64; };
  const Change loss = [](ConvertOptions& o) { o.max_loss_increase = 0.1; };
  const Change method = [](ConvertOptions& o) { o.method = ConversionMethod::kWeight; };
  const Change activation = [](ConvertOptions& o) { o.method = ConversionMethod::kActivation; };
  const Change groups = [](ConvertOptions& o) { o.groups = 2; };
  const Change text = [this](ConvertOptions& o) { o.calibrate = text_; };

  const Change pool = [](ConvertOptions& o) { o.method = ConversionMethod::kPool; };

  for (const Change& change : {rank, bytes, loss}) {
    EXPECT_EQ(refusal(AttentionKind::kMha, {change}),
              "--rank, --bytes-per-position and --max-loss-increase go with --attention mla");
    EXPECT_THAT(refusal(AttentionKind::kGqa, {change, groups}), HasSubstr("--attention mla"));
  }
  for (const Change& change : {method, activation, pool}) {
    EXPECT_EQ(refusal(AttentionKind::kMha, {change}),
              "--method goes with --attention gqa or mla: heads are repeated in one way only");
  }
  EXPECT_EQ(refusal(AttentionKind::kMla, {pool}),
            "--method pool goes with --attention gqa; allowed with mla: activation, weight");
  EXPECT_EQ(refusal(AttentionKind::kGqa, {activation, groups}),
            "--method activation needs --calibrate TEXT");
  for (const std::vector<Change>& changes :
       {std::vector<Change>{rank, bytes}, {rank, loss, text}, {bytes, loss, text}}) {
    EXPECT_EQ(refusal(AttentionKind::kMla, changes),
              "only one of --rank, --bytes-per-position and --max-loss-increase may be given");
  }
  EXPECT_THAT(refusal(AttentionKind::kGqa, {}), HasSubstr("--groups"));
  EXPECT_THAT(refusal(AttentionKind::kMla, {groups}), HasSubstr("--groups goes with"));
  EXPECT_THAT(refusal(AttentionKind::kMha, {groups}), HasSubstr("--groups goes with"));
  EXPECT_EQ(refusal(AttentionKind::kMla, {activation}),
            "--method activation needs --calibrate TEXT");
  EXPECT_EQ(refusal(AttentionKind::kMla, {loss}), "--max-loss-increase needs --calibrate TEXT");
}

TEST_F(ConvertTest, NumbersOutOfRangeAreRefused) {
  ConvertOptions options = ToMla();
  for (const int64_t rank : {0, -3}) {
    options.rank = rank;
    EXPECT_THAT(Refusal(options), AllOf(HasSubstr("--rank " + std::to_string(rank)),
                                        HasSubstr("allowed: 1 and more")));
  }
  options.rank = 25;
  EXPECT_THAT(Refusal(options),
              AllOf(HasSubstr(options.from.string()), HasSubstr("rank 25"), HasSubstr("1 to 24")));
  options = ToMla();
  for (const int64_t bytes : {7, 0, -1}) {
    options.bytes_per_position = bytes;
    EXPECT_EQ(Refusal(options), "--bytes-per-position " + std::to_string(bytes) +
                                    " is less than one element of 4 bytes in each of 2 layers");
  }
  options = Options(AttentionKind::kMha, AttentionKind::kGqa);
  options.groups = 3;
  EXPECT_THAT(Refusal(options), HasSubstr("groups 3 must divide its 4 key/value heads"));
}

TEST_F(ConvertTest, APlaceThatIsTakenIsRefused) {
  ConvertOptions options = ToMla();
  std::filesystem::create_directory(options.to);
  WriteFile(options.to / "mine", "");
  EXPECT_EQ(Refusal(options),
            "--to " + options.to.string() + ": exists and is not an empty directory");
  options.to = options.from;
  EXPECT_THAT(Refusal(options), HasSubstr("exists and is not an empty directory"));
  for (const char* content : {"", "mine"}) {
    options.to = dir_.path() / "file";
    WriteFile(options.to, content);
    EXPECT_THAT(Refusal(options), HasSubstr("--to " + options.to.string() + ": exists"));
    EXPECT_EQ(ReadFile(options.to), content);
    options.to /= "model";
    EXPECT_THAT(Refusal(options), HasSubstr((dir_.path() / "file").string()));
  }
}

TEST_F(ConvertTest, WritesInsideADirectoryThatIsThere) {
  ConvertOptions options = ToMla();
  std::filesystem::create_directory(dir_.path() / "volume");
  std::filesystem::create_directory_symlink(dir_.path() / "volume", options.to);
  // The files of a killed run do not count as content.
  WriteFile(dir_.path() / "volume" / "model.safetensors.partial-0123abcd", "half");
  ConvertModel(options);
  EXPECT_TRUE(std::filesystem::is_symlink(options.to));
  EXPECT_EQ(Loaded(dir_.path() / "volume").config.attention, AttentionKind::kMla);
}

// It is refused before the source is read, and so before hours of calibration.
TEST_F(ConvertTest, APlaceThatCannotBeMadeIsRefusedFirst) {
  ConvertOptions options = ToMla();
  options.from = dir_.path() / "none";
  std::filesystem::create_directory_symlink(dir_.path() / "nowhere", options.to);
  EXPECT_EQ(Refusal(options),
            options.to.string() + ": cannot be written: No such file or directory");
}

TEST_F(ConvertTest, UnusableSourcesAreRefused) {
  ConvertOptions options = ToMla();
  options.from = dir_.path() / "none";
  EXPECT_THAT(Refusal(options), HasSubstr("none"));
  Checkpoint rotary = Source(AttentionKind::kMha);
  rotary.config.position_embedding = PositionEmbedding::kRope;
  options.from = dir_.path() / "rotary";
  SaveCheckpoint(options.from, rotary.config, rotary.weights);
  options.bytes_per_position = 512;
  EXPECT_THAT(Refusal(options), AllOf(HasSubstr(options.from.string()), HasSubstr("\"rope\""),
                                      HasSubstr("--rope-head-dim")));
  options.bytes_per_position.reset();
  options.rope_head_dim = 3;
  EXPECT_THAT(Refusal(options), AllOf(HasSubstr(options.from.string()), HasSubstr("width 3")));
  options.rope_head_dim.reset();
  Checkpoint broken = Source(AttentionKind::kMha);
  broken.weights.at("model.layers.1.self_attn.k_proj.weight")[0][0] = std::nan("");
  options.from = dir_.path() / "broken";
  SaveCheckpoint(options.from, broken.config, broken.weights);
  EXPECT_THAT(Refusal(options), AllOf(HasSubstr(options.from.string()),
                                      HasSubstr("model.layers.1.self_attn.k_proj.weight")));
  options = ToMla();
  ConvertModel(options);
  options.from = options.to;
  options.to = dir_.path() / "again";
  EXPECT_THAT(Refusal(options), HasSubstr("attention is \"mla\""));
}

TEST_F(ConvertTest, UnusableTextsAreRefused) {
  ConvertOptions options = Calibrated();
  options.calibrate = dir_.path() / "none.txt";
  EXPECT_EQ(Refusal(options),
            options.calibrate.string() + ": cannot be read: No such file or directory");
  options.calibrate = dir_.path() / "short.txt";
  for (const int64_t length : {0, 1, 64, 70}) {  // of 70, 63 are not held out
    WriteFile(options.calibrate, Words(100).substr(0, length));
    EXPECT_THAT(Refusal(options), AllOf(StartsWith(options.calibrate.string()),
                                        HasSubstr("fewer than one window of 64")))
        << length;
  }
  WriteFile(options.calibrate, Words(100).substr(0, 71));
  EXPECT_EQ(Converted(options).config.attention, AttentionKind::kMla);
  std::filesystem::remove_all(options.to);
  options.held_out = 0;  // the training part decides on ranks
  options.max_loss_increase = 100;
  EXPECT_THAT(Converted(options).config.kv_lora_rank, Each(1));
}

// The text has tokens without an embedding in this model.
TEST_F(ConvertTest, AModelOfAnotherTokenizerCannotBeCalibrated) {
  Checkpoint small = Source(AttentionKind::kMha);
  small.config.vocab_size = 37;
  small.weights = RandomWeights(small.config, 1);
  ConvertOptions options = Calibrated();
  options.from = dir_.path() / "small";
  SaveCheckpoint(options.from, small.config, small.weights);
  EXPECT_THAT(Refusal(options), AllOf(HasSubstr("vocab_size is 37"), HasSubstr("at least 257")));
  options.calibrate.clear();
  EXPECT_EQ(Converted(options).config.vocab_size, 37);
}

// ---- The program -----------------------------------------------------------------------------

class ConvertProgramTest : public ConvertTest {
 protected:
  Process::Result Run(const std::vector<std::string>& arguments) const {
    std::vector<std::string> argv = {TRIPTYCH_MODEL_PROGRAM, "--threads", "1", "convert", "--to",
                                     dir_.path() / "out"};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return Process(argv, {}).Wait();
  }
  void ExpectRefused(const std::vector<std::string>& arguments, const std::string& why) const {
    const std::set<std::string> before = Everything();
    const Process::Result result = Run(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, AllOf(StartsWith("triptych-model: "), HasSubstr(why)));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(Everything(), before);
  }
  std::string Model(AttentionKind kind) const { return dir_.path() / Name(kind); }
};

TEST_F(ConvertProgramTest, ConvertsAndPrintsWhatTheCardSays) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"--from", Model(AttentionKind::kMha), "--attention", "mla", "--rank", "9", "--dtype",
            "bfloat16", "--calibrate", text_},
           {"--from", Model(AttentionKind::kMha), "--attention", "gqa", "--groups", "1"},
           {"--from", Model(AttentionKind::kGqa), "--attention", "mha"}}) {
    std::filesystem::remove_all(dir_.path() / "out");
    const Process::Result result = Run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    // Progress, if there is a calibration.
    const bool calibrated = arguments.back() == text_;
    EXPECT_THAT(result.err,
                StartsWith(calibrated ? "held-out loss of " + arguments[1] + ": " : ""));
    EXPECT_EQ(result.err.empty(), !calibrated);
    EXPECT_THAT(result.out, StartsWith((dir_.path() / "out").string() + ": "));
    EXPECT_THAT(Card(), HasSubstr(result.out.substr(result.out.find(": ") + 2)));
    EXPECT_EQ(Name(Loaded(dir_.path() / "out").config.attention), arguments[3]);
  }
}

// With added positions and biases everywhere, a latent of D holds keys and values exactly.
TEST_F(ConvertProgramTest, Gpt2LosesNothingAtARankOfItsWidth) {
  int models = 0;
  for (const published::NamedConfig& named : published::EveryFamily()) {
    if (named.config.at("model_type") != "gpt2") continue;
    SCOPED_TRACE(named.name);
    ++models;
    const int64_t width = named.config.at("n_embd"), vocab = named.config.at("vocab_size");
    const published::Tensors tensors = published::RandomTensors(named.config, 1);
    const std::filesystem::path from = dir_.path() / named.name;
    std::filesystem::create_directory(from);
    published::WriteCheckpoint(from, named.config, tensors);
    std::filesystem::remove_all(dir_.path() / "out");
    const Process::Result result =
        Run({"--from", from, "--attention", "mla", "--rank", std::to_string(width)});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Checkpoint to = Loaded(dir_.path() / "out");
    EXPECT_THAT(to.config.kv_lora_rank, Each(width));
    EXPECT_EQ(2 * ElementsPerPosition(to.config), ElementsPerPosition(Loaded(from).config));
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < 24; ++i) ids.push_back((7 * i * i + 3 * i + 1) % vocab);
    // Factors are rounded to float32.
    EXPECT_LE(RelativeError(Decoder(to.config, to.weights, ComputeType::kFloat64)
                                .Forward(ToTensor(ids).unsqueeze(0))[0],
                            published::Logits(named.config, tensors, ids)),
              1e-5);
  }
  EXPECT_EQ(models, 3);
}

// A mistake that the parser finds, one in the options, and one in the text.
TEST_F(ConvertProgramTest, MistakesAreOneLineAndStatusTwo) {
  const std::string mha = Model(AttentionKind::kMha);
  ExpectRefused({"--from", mha, "--attention", "mqa"}, "--attention");
  ExpectRefused({"--from", mha, "--attention", "mla", "--rank", "3", "--bytes-per-position", "99"},
                "only one of");
  WriteFile(text_, "short");
  ExpectRefused({"--from", mha, "--attention", "mla", "--calibrate", text_}, "fewer than one");
}

}  // namespace
}  // namespace triptych::tools::convert_test
