#include "engine/tools/research/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "engine/decoder/conversion_rules.h"
#include "engine/decoder/convert_weights.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/weights.h"
#include "engine/decoder/write_weights.h"
#include "engine/tools/calibration.h"
#include "engine/tools/convert.h"
#include "engine/tools/evaluate.h"
#include "engine/tools/input_moments.h"
#include "engine/tools/latent_cut.h"
#include "engine/tools/train.h"
#include "tests/support/held_out.h"
#include "tests/support/random_model.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace triptych::tools::sweep_test {
namespace {

const size_t kFormats = Names<CacheFormat>().size();  // formats of the cache, all measured

class SweepTest : public testing::Test {
 protected:
  SweepTest() {
    std::string text;
    for (int i = 0; i < 150; ++i) text += "all the world's a stage, ";
    WriteFile(options_.text, text);
  }

  Checkpoint Save(AttentionKind kind) const {
    Checkpoint model{.config = SmallModel(kind), .weights = {}};
    model.config.position_embedding = PositionEmbedding::kLearned;
    model.config.max_position_embeddings = 32;
    model.config.torch_dtype = TensorFormat::kBFloat16;
    model.weights = RandomWeights(model.config, 5);
    SaveCheckpoint(options_.model, model.config, model.weights);
    return LoadCheckpoint(options_.model, TensorFormat::kFloat32);
  }

  // The cells of each row, by cache, attention, method, groups or rank (and width of decoupled
  // keys, if there are some), and seed.
  std::map<std::string, std::vector<std::string>> Rows() const {
    std::istringstream lines(ReadFile(options_.csv));
    std::string line;
    std::getline(lines, line);
    EXPECT_THAT(line, testing::StartsWith("# healed for "));
    std::getline(lines, line);
    EXPECT_EQ(line,
              "attention,method,groups,rank,rope_head_dim,elements_per_position,cache,"
              "bytes_per_position,loss,seed,half_healed_loss,healed_loss");
    std::map<std::string, std::vector<std::string>> rows;
    while (std::getline(lines, line)) {
      std::vector<std::string> cells(1);
      for (const char c : line) {
        if (c == ',') {
          cells.emplace_back();
        } else {
          cells.back() += c;
        }
      }
      EXPECT_EQ(cells.size(), 12u) << line;
      const std::string& width = cells.at(4);
      const std::string key = cells.at(6) + " " + cells.at(0) + " " + cells.at(1) + " " +
                              cells.at(2) + cells.at(3) +
                              (width.empty() || width == "0" ? "" : "+" + width) +
                              (cells.at(9).empty() ? "" : " " + cells.at(9));
      EXPECT_TRUE(rows.emplace(key, cells).second) << key << " stands there twice";
    }
    return rows;
  }

  std::string Refusal() const {
    return RefusalOf<std::runtime_error>([&] { Sweep(options_); });
  }

  TempDir dir_;
  SweepOptions options_{.model = dir_.path() / "mha",
                        .text = dir_.path() / "text.txt",
                        .held_out = 0.2,
                        .csv = dir_.path() / "sweep.csv"};
};

TEST_F(SweepTest, MeasuresEachCacheInEveryFormat) {
  const Checkpoint mha = Save(AttentionKind::kMha);
  testing::internal::CaptureStdout();
  Sweep(options_);
  const std::string table = testing::internal::GetCapturedStdout();
  const auto rows = Rows();
  const ModelConfig& config = mha.config;
  const Corpus corpus = TestCorpus(options_.text, *options_.held_out);
  // H = 4, D = 24: the model, two sizes of groups, and sixteenths of 24.
  ASSERT_EQ(config.num_attention_heads, 4);
  ASSERT_EQ(config.hidden_size, 24);
  EXPECT_EQ(rows.size(), kFormats * (1 + 2 + 6));
  int moved = 0;  // losses changed by rounding of the cache, beyond the printed precision
  const auto expect = [&](const std::string& key, const Checkpoint& model) {
    for (const auto& [name, cache] : Names<CacheFormat>()) {
      const auto& cells = rows.at(name + " " + key);
      const int64_t elements = ElementsPerPosition(model.config);
      EXPECT_EQ(std::stoll(cells[5]), elements) << key;
      EXPECT_EQ(std::stoll(cells[7]), MakeCacheGeometry(model.config, cache, 16).BytesPerPosition())
          << key;
      // Rounded to the six printed digits.
      const double loss = HeldOutLoss(AsStored(model), corpus, cache);
      EXPECT_NEAR(std::stod(cells[8]), loss, 1e-5) << key;
      for (const size_t unhealed : {9, 10, 11}) EXPECT_EQ(cells[unhealed], "") << key;
      if (std::abs(loss - HeldOutLoss(AsStored(model), corpus)) > 2e-5) ++moved;
    }
  };
  const std::vector<at::Tensor> covariances = InputCovariances(mha, corpus);
  const std::vector<Window> windows = ChoosingWindows(corpus, config);
  expect("mha none 4", mha);
  for (const int64_t groups : {2, 1}) {
    expect("gqa activation " + std::to_string(groups),
           ByBetterBases(mha, groups, covariances, windows).to);
  }
  for (const int64_t rank : {24, 12, 6, 4, 3, 1}) {
    expect("mla activation " + std::to_string(rank),
           ToLatent(mha, DecomposeLayers(mha, covariances), {rank, rank}));
  }
  EXPECT_GT(moved, 5);
  // r = D is exact except for rounding to bfloat16, and the row is half as long.
  EXPECT_NEAR(std::stod(rows.at("float32 mla activation 24")[8]), HeldOutLoss(mha, corpus), 1e-2);
  EXPECT_THAT(table, testing::HasSubstr("| 96 | bfloat16 | gqa, G = 2 | activation | "));
  EXPECT_THAT(table, testing::HasSubstr("| 192 | float32 | gqa, G = 2 | activation | "));
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), static_cast<int64_t>(2 + rows.size()));
}

// There is a row for each point and seed. The source is a trained model and the only teacher.
// Conversions that lost much regain it, the more the longer they are trained. The source itself
// does not change, as it would if it learned from the text.
TEST_F(SweepTest, HealsEveryPointWithEverySeedAndLeavesNothingElse) {
  Save(AttentionKind::kMha);
  TrainOptions learning{.from = options_.model,
                        .text = options_.text,
                        .output = dir_.path() / "learned",
                        .held_out = options_.held_out,
                        .steps = 20,
                        .batch_size = 4,
                        .learning_rate = 1e-2,
                        .warmup_steps = 2,
                        .dropout = 0};
  Train(learning);
  std::filesystem::remove_all(options_.model);
  std::filesystem::rename(learning.output, options_.model);
  options_.heal_steps = 4;
  options_.heal_seeds = {21, 22, 23};
  testing::internal::CaptureStdout();
  Sweep(options_);
  const std::string table = testing::internal::GetCapturedStdout();
  const auto rows = Rows();
  EXPECT_EQ(rows.size(), 3 * kFormats * 9);
  const double own = std::stod(rows.at("float32 mha none 4 21")[8]);
  int hurt = 0;
  for (const auto& [key, cells] : rows) {
    const double converted = std::stod(cells[8]), healed = std::stod(cells[11]);
    EXPECT_EQ(cells[10].empty(), cells[9] != "21") << key;
    if (converted > own + 0.1) {
      ++hurt;
      EXPECT_LT(healed, converted) << key;
      if (!cells[10].empty()) {
        EXPECT_LT(healed, std::stod(cells[10])) << key;
      }
    }
    if (cells[1] == "none") {
      EXPECT_NEAR(healed, converted, 5e-3) << key;
    }
    if (cells[9] != "21") continue;
    const std::string name = key.substr(0, key.size() - 2);
    EXPECT_EQ(rows.at(name + "22")[8], cells[8]) << key;    // one conversion
    EXPECT_NE(rows.at(name + "22")[11], cells[11]) << key;  // other windows
  }
  EXPECT_GT(hurt, 0);
  std::vector<double> healed;
  for (const char* seed : {"21", "22", "23"}) {
    healed.push_back(std::stod(rows.at(std::string("bfloat16 gqa activation 1 ") + seed)[11]));
  }
  std::sort(healed.begin(), healed.end());
  const auto& first = rows.at("bfloat16 gqa activation 1 21");
  char end[96];
  std::snprintf(end, sizeof(end), " | %.4f (%.4f to %.4f) | %.4f |\n",
                (healed[0] + healed[1] + healed[2]) / 3, healed[0], healed[2],
                std::stod(first[11]) - std::stod(first[10]));
  const size_t row = table.find("| bfloat16 | gqa, G = 1 | activation |");
  ASSERT_NE(row, std::string::npos) << table;
  EXPECT_THAT(table.substr(row, table.find('\n', row) + 1 - row), testing::EndsWith(end));

  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
    names.insert(entry.path().filename());
  }
  EXPECT_THAT(names, testing::ElementsAre("mha", "sweep.csv", "text.txt"));
}

// An interrupted sweep resumes: existing rows are not computed again, except a truncated one, and
// the result is the same as without interruption.
TEST_F(SweepTest, GoesOnWhereItStopped) {
  Save(AttentionKind::kMha);
  options_.heal_steps = 2;
  options_.heal_seeds = {21};
  Sweep(options_);
  const std::string whole = ReadFile(options_.csv);
  const auto first_lines = [&](int count) {
    size_t end = 0;
    for (int i = 0; i < count; ++i) end = whole.find('\n', end) + 1;
    return whole.substr(0, end);
  };
  for (const std::string& left :
       {first_lines(1).substr(0, 9), first_lines(2), first_lines(7), first_lines(7) + "gqa,act"}) {
    WriteFile(options_.csv, left);
    Sweep(options_);
    EXPECT_EQ(ReadFile(options_.csv), whole) << left;
  }
  // An existing row is kept as it is, and more seeds are added after it.
  std::string marked = whole;
  marked.replace(marked.rfind(',') + 1, std::string::npos, "0.125\n");
  WriteFile(options_.csv, marked);
  options_.heal_seeds = {21, 22};
  Sweep(options_);
  EXPECT_THAT(ReadFile(options_.csv), testing::StartsWith(marked));
  EXPECT_EQ(Rows().size(), 2 * kFormats * 9);
  // Only the first seed has a half. With another first seed, that column of the table is empty.
  options_.heal_seeds = {22, 21};
  testing::internal::CaptureStdout();
  Sweep(options_);
  const std::string table = testing::internal::GetCapturedStdout();
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), static_cast<int64_t>(2 + kFormats * 9));
  for (size_t row = table.find("\n| "); row != std::string::npos;
       row = table.find("\n| ", row + 1)) {
    const std::string line = table.substr(row + 1, table.find('\n', row + 1) - row - 1);
    EXPECT_THAT(line, testing::EndsWith(") |  |"));
  }
}

TEST_F(SweepTest, AnotherSweepsFileIsRefusedAndStays) {
  Save(AttentionKind::kMha);
  options_.heal_steps = 2;
  options_.heal_seeds = {21};
  Sweep(options_);
  const std::string whole = ReadFile(options_.csv);
  const std::string refused = "--sweep " + options_.csv.string() +
                              ": holds something else; allowed: a new file, or the sweep of this "
                              "model, text and --heal-steps";
  options_.heal_steps = 3;
  EXPECT_EQ(Refusal(), refused);
  options_.heal_steps = 2;
  options_.held_out = 0.3;
  EXPECT_EQ(Refusal(), refused);
  options_.held_out = 0.2;
  Checkpoint other = Save(AttentionKind::kMha);
  other.weights = RandomWeights(other.config, 6);
  SaveCheckpoint(dir_.path() / "other", other.config, other.weights);
  options_.model = dir_.path() / "other";
  EXPECT_EQ(Refusal(), refused);
  EXPECT_EQ(ReadFile(options_.csv), whole);
  for (const char* mine : {"mine", "mine\n", "# healed for 2 steps, by another program\n"}) {
    WriteFile(options_.csv, mine);
    EXPECT_EQ(Refusal(), refused);
    EXPECT_EQ(ReadFile(options_.csv), mine);
  }
}

TEST_F(SweepTest, OneStepHasNoHalf) {
  Save(AttentionKind::kMha);
  options_.heal_steps = 1;
  EXPECT_EQ(Refusal(), "--heal-steps 1 has no half; allowed: 0, 2 and more");
  EXPECT_FALSE(std::filesystem::exists(options_.csv));
}

TEST_F(SweepTest, OtherFilesOfTheDirectoryStay) {
  Save(AttentionKind::kMha);
  const std::filesystem::path mine = options_.csv.string() + ".work";
  std::filesystem::create_directory(mine);
  WriteFile(mine / "kept", "mine");
  options_.heal_steps = 2;
  options_.heal_seeds = {21};
  Sweep(options_);
  EXPECT_EQ(ReadFile(mine / "kept"), "mine");
}

TEST_F(SweepTest, AnOldSweepStaysIfThereCanBeNoNewOne) {
  Save(AttentionKind::kMha);
  WriteFile(options_.csv, "an old sweep");
  WriteFile(options_.text, "short");
  EXPECT_THROW(Sweep(options_), std::runtime_error);
  EXPECT_EQ(ReadFile(options_.csv), "an old sweep");
}

TEST_F(SweepTest, ALatentModelIsRefused) {
  Save(AttentionKind::kMla);
  EXPECT_EQ(Refusal(), options_.model.string() +
                           ": attention is \"mla\", which cannot be converted; allowed: \"mha\", "
                           "\"gqa\"");
  EXPECT_FALSE(std::filesystem::exists(options_.csv));
}

// No row of latents holds the norm of all heads together, or of a key with a bias.
TEST_F(SweepTest, NormsThatLatentsDoNotHaveAreRefused) {
  ModelConfig config = SmallModel(AttentionKind::kGqa);
  config.position_embedding = PositionEmbedding::kRope;
  config.qk_norm = true;
  config.attention_bias = true;
  SaveCheckpoint(options_.model, config, RandomWeights(config, 5));
  EXPECT_THAT(Refusal(), testing::HasSubstr("qk_norm and attention_bias are true"));
  config.attention_bias = false;
  config.qk_norm_all_heads = true;
  SaveCheckpoint(options_.model, config, RandomWeights(config, 5));
  EXPECT_THAT(Refusal(), testing::HasSubstr("qk_norm_all_heads is true"));
  EXPECT_FALSE(std::filesystem::exists(options_.csv));
}

// Without rotation: GQA is made by pooling, and MLA at every rank with the 2 inverse norms.
TEST_F(SweepTest, NormedKeysAreMeasuredWithTheirInverseNorms) {
  ModelConfig config = SmallModel(AttentionKind::kGqa);
  config.qk_norm = true;
  config.max_position_embeddings = 32;
  SaveCheckpoint(options_.model, config, RandomWeights(config, 5));
  options_.heal_steps = 2;
  options_.heal_seeds = {21};
  Sweep(options_);
  const auto rows = Rows();
  EXPECT_EQ(rows.size(), kFormats * (1 + 1 + 6));
  EXPECT_TRUE(rows.contains("float32 gqa pool 1 21"));
  const Checkpoint source = LoadCheckpoint(options_.model, TensorFormat::kFloat32);
  const Corpus corpus = TestCorpus(options_.text, *options_.held_out);
  const auto svds = DecomposeLayers(source, InputCovariances(source, corpus));
  for (const int64_t rank : {24, 12, 6, 4, 3, 1}) {
    const auto& cells = rows.at("int8 mla activation " + std::to_string(rank) + " 21");
    const Checkpoint made = ToLatent(source, svds, {rank, rank});
    EXPECT_EQ(std::stoll(cells[5]), 2 * (rank + 2));
    EXPECT_EQ(std::stoll(cells[7]), 2 * (RowBytes(CacheFormat::kInt8, rank) + 2 * 4));
    EXPECT_NEAR(std::stod(cells[8]), HeldOutLoss(AsStored(made), corpus, CacheFormat::kInt8), 1e-5);
    EXPECT_TRUE(std::isfinite(std::stod(cells[11])));
  }
  EXPECT_NEAR(std::stod(rows.at("float32 mla activation 24 21")[8]), HeldOutLoss(source, corpus),
              1e-4);
}

// G = 2 has the full rank D = 24 too: the model, one group, and sixteenths.
TEST_F(SweepTest, StartsFromGqaToo) {
  Save(AttentionKind::kGqa);
  Sweep(options_);
  const auto rows = Rows();
  EXPECT_EQ(rows.size(), kFormats * (1 + 1 + 6));
  EXPECT_TRUE(rows.contains("float32 gqa none 2"));
  EXPECT_TRUE(rows.contains("float32 gqa activation 1"));
}

class RotarySweepTest : public SweepTest, public testing::WithParamInterface<bool> {};

// Heads are averaged. Each method has the best width of decoupled keys for each row. Normed keys
// leave less for the latent, so that the rows have the same bytes.
TEST_P(RotarySweepTest, KeysAreMeasuredAtTheirBestWidth) {
  Checkpoint source{.config = SmallModel(AttentionKind::kGqa), .weights = {}};
  ModelConfig& config = source.config;
  config.qk_norm = GetParam();
  config.head_dim = 8;  // 2 groups: rows of 32 elements
  config.position_embedding = PositionEmbedding::kRope;
  config.max_position_embeddings = 32;
  source.weights = RandomWeights(config, 5);
  SaveCheckpoint(options_.model, config, source.weights);
  source = LoadCheckpoint(options_.model, TensorFormat::kFloat32);
  testing::internal::CaptureStdout();
  Sweep(options_);
  const std::string table = testing::internal::GetCapturedStdout();
  const auto rows = Rows();
  EXPECT_EQ(rows.size(), kFormats * (1 + 1 + 3 * 5));
  EXPECT_TRUE(rows.contains("float32 gqa pool 1"));

  const Corpus corpus = TestCorpus(options_.text, *options_.held_out);
  const std::vector<Window> windows = ChoosingWindows(corpus, config);
  const std::vector<at::Tensor> covariances = InputCovariances(source, corpus);
  EXPECT_EQ(DecoupledWidths(config), (std::vector<int64_t>{2, 4, 8, 16}));
  const int64_t norms = config.qk_norm ? config.num_key_value_heads : 0;  // in float32 as all
  struct Method {
    std::string name;
    int64_t fold;
    std::vector<at::Tensor> covariances;
  };
  for (const auto& [name, fold, by] :
       {Method{"weight", 1, {}}, Method{"activation", 1, covariances},
        Method{"folded", 2, covariances}}) {
    for (const int64_t row : {24, 16, 12, 8, 6}) {
      std::optional<Checkpoint> best;
      double least = 0;
      for (const int64_t width : {2, 4, 8, 16}) {
        const int64_t rank = row - width - norms;
        if (rank < 1 || rank > FullRank(config, width)) continue;
        const DecoupledKeys keys = MixedPairs(source, fold, by).Strongest(width);
        const Checkpoint made =
            ToLatent(source, DecomposeLayers(source, by, keys), {rank, rank}, keys);
        const double loss =
            MeanLoss(Decoder(made.config, made.weights, ComputeType::kFloat32), windows);
        if (!best || loss < least) best = made, least = loss;
      }
      ASSERT_TRUE(best.has_value());
      const std::string size = std::to_string(best->config.kv_lora_rank.front());
      const std::string width = std::to_string(best->config.qk_rope_head_dim);
      const auto found = rows.find("float32 mla " + name + " " + size + "+" + width);
      ASSERT_NE(found, rows.end()) << name << " of " << row << ": " << size << "+" << width;
      EXPECT_EQ(std::stoll(found->second[5]), 2 * row);
      EXPECT_EQ(std::stoll(found->second[7]), 2 * row * 4);
      EXPECT_NEAR(std::stod(found->second[8]), HeldOutLoss(*best, corpus), 1e-5);
      EXPECT_THAT(table,
                  testing::HasSubstr("| mla, r = " + size + ", d_R = " + width + " | " + name));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Keys, RotarySweepTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "Normed" : "NotNormed"; });

}  // namespace
}  // namespace triptych::tools::sweep_test
