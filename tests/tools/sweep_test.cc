#include "engine/tools/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "engine/decoder/conversion.h"
#include "engine/tools/evaluate.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tokenizer.h"

namespace triptych {
namespace {

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
    model.config.torch_dtype = WeightFormat::kBFloat16;
    model.weights = RandomWeights(model.config, 5);
    SaveCheckpoint(options_.model, model.config, model.weights);
    return LoadCheckpoint(options_.model, WeightFormat::kFloat32);
  }

  // The cells of each row, by attention, method, groups and rank.
  std::map<std::string, std::vector<std::string>> Rows() const {
    std::istringstream lines(ReadFile(options_.csv));
    std::string line;
    std::getline(lines, line);
    EXPECT_EQ(line,
              "attention,method,groups,rank,elements_per_position,bytes_per_position,loss,"
              "healed_loss");
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
      const std::string key = cells.at(0) + " " + cells.at(1) + " " + cells.at(2) + cells.at(3);
      EXPECT_TRUE(rows.emplace(key, cells).second) << key << " stands there twice";
    }
    return rows;
  }

  TempDir dir_;
  SweepOptions options_{.model = dir_.path() / "mha",
                        .text = dir_.path() / "text.txt",
                        .held_out = 0.2,
                        .csv = dir_.path() / "sweep.csv"};
};

TEST_F(SweepTest, MeasuresEveryConversion) {
  const Checkpoint mha = Save(AttentionKind::kMha);
  Sweep(options_);
  const auto rows = Rows();
  const ModelConfig& config = mha.config;
  const Corpus corpus(options_.text, *TestTokenizer(), options_.held_out);
  // H = 4, D = 24: the model, two poolings, and sixteenths of 24 twice.
  ASSERT_EQ(config.num_attention_heads, 4);
  ASSERT_EQ(config.hidden_size, 24);
  EXPECT_EQ(rows.size(), 1 + 2 + 2 * 8);
  const auto expect = [&](const std::string& key, const Checkpoint& model) {
    const auto& cells = rows.at(key);
    EXPECT_EQ(std::stoll(cells[4]), ElementsPerPosition(model.config)) << key;
    EXPECT_EQ(std::stoll(cells[5]), 2 * ElementsPerPosition(model.config)) << key;
    // As printed, with six digits; and another thread count may sum in another order.
    EXPECT_NEAR(std::stod(cells[6]), HeldOutLoss(AsStored(model), corpus), 1e-4) << key;
    EXPECT_EQ(cells[7], "") << key;  // not healed
  };
  expect("mha none 4", mha);
  for (const int64_t groups : {2, 1}) {
    expect("gqa pool " + std::to_string(groups),
           Convert(mha, {.attention = AttentionKind::kGqa, .groups = groups}, "mha"));
  }
  for (const int64_t rank : {24, 18, 12, 9, 6, 4, 3, 1}) {
    expect("mla weight " + std::to_string(rank),
           Convert(mha, {.attention = AttentionKind::kMla, .rank = rank}, "mha"));
  }
  // Nothing is lost at r = D but by rounding to bfloat16, and the row is half as long.
  EXPECT_NEAR(std::stod(rows.at("mla activation 24")[6]), HeldOutLoss(mha, corpus), 1e-2);
}

TEST_F(SweepTest, HealingLowersTheLossAndLeavesNothingElse) {
  Save(AttentionKind::kMha);
  options_.heal_steps = 3;
  Sweep(options_);
  const auto rows = Rows();
  EXPECT_GE(rows.size(), 4);
  for (const auto& [key, cells] : rows) {
    EXPECT_LT(std::stod(cells[7]), std::stod(cells[6])) << key;  // an untrained model learns fast
  }
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
    names.insert(entry.path().filename());
  }
  EXPECT_THAT(names, testing::ElementsAre("mha", "sweep.csv", "text.txt"));
}

TEST_F(SweepTest, WhatIsBesideItStays) {
  Save(AttentionKind::kMha);
  const std::filesystem::path mine = options_.csv.string() + ".work";
  std::filesystem::create_directory(mine);
  WriteFile(mine / "kept", "mine");
  options_.heal_steps = 1;
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

TEST_F(SweepTest, StartsFromMhaOnly) {
  Save(AttentionKind::kMla);
  try {
    Sweep(options_);
    FAIL();
  } catch (const LoadError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("a sweep starts from \"mha\""));
  }
}

}  // namespace
}  // namespace triptych
