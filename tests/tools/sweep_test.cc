#include "engine/tools/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "engine/model/checkpoint.h"
#include "engine/tools/evaluate.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

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
    model.config.torch_dtype = DType::kFloat32;
    model.weights = RandomWeights(model.config, 5);
    SaveCheckpoint(options_.model, model.config, model.weights);
    return model;
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
      rows[cells.at(0) + " " + cells.at(1) + " " + cells.at(2) + cells.at(3)] = cells;
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
  const double loss = HeldOutLoss(Decoder(config, mha.weights, at::kFloat),
                                  Corpus(options_.text, options_.held_out));
  const std::string heads = std::to_string(config.num_attention_heads);
  const std::string full = std::to_string(config.hidden_size);
  EXPECT_NEAR(std::stod(rows.at("mha none " + heads)[6]), loss, 1e-4);
  EXPECT_TRUE(rows.contains("gqa pool 1"));
  for (const char* method : {"weight", "activation"}) {
    const auto& cells = rows.at(std::string("mla ") + method + " " + full);
    // Nothing is lost at r = D, and the row is half as long.
    EXPECT_NEAR(std::stod(cells[6]), loss, 1e-4);
    EXPECT_EQ(std::stoll(cells[4]), config.num_hidden_layers * config.hidden_size);
    EXPECT_EQ(std::stoll(cells[5]), 4 * std::stoll(cells[4]));
    EXPECT_EQ(cells[7], "");  // not healed
  }
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
  EXPECT_FALSE(std::filesystem::exists(options_.csv.string() + ".work"));
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
