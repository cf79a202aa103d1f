#include "engine/checkpoint/open_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "tests/support/published_configs.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace triptych::checkpoint::open_checkpoint_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Stored {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

std::string Safetensors(const std::map<std::string, Stored>& tensors) {
  Json header = Json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = data.size();
    data.resize(begin + tensor.values.size() * sizeof(float));
    std::memcpy(data.data() + begin, tensor.values.data(), tensor.values.size() * sizeof(float));
    header[name] = {
        {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const uint64_t size = text.size();
  std::string file(sizeof(size), '\0');
  std::memcpy(file.data(), &size, sizeof(size));
  return file + text + data;
}

// A fine-tuned head next to an embedding that its config still calls tied.
TEST(OpenCheckpointTest, AHeadThatDiffersFromTheTiedEmbeddingIsTheHead) {
  const Stored embedding{{4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}};
  Stored other = embedding;
  other.values.back() = 9;
  const auto open = [&](const Json& config, const std::string& name, const Stored& head) {
    const TempDir directory;
    WriteFile(directory.path() / "config.json", config.dump());
    WriteFile(directory.path() / "model.safetensors",
              Safetensors({{name, embedding}, {"lm_head.weight", head}}));
    return OpenCheckpoint(directory.path());
  };
  Json tied = published::SmolLm2();
  tied["tie_word_embeddings"] = true;
  for (const auto& [config, name] :
       {std::pair<Json, std::string>(tied, "model.embed_tokens.weight"),
        {published::Gpt2(), "wte.weight"}}) {
    const OpenedCheckpoint differs = open(config, name, other);
    EXPECT_FALSE(differs.config.tie_word_embeddings);
    EXPECT_NE(differs.tensors->Find("lm_head.weight"), nullptr);
    EXPECT_THAT(differs.warnings,
                ElementsAre(HasSubstr("lm_head.weight differs from the embedding")));
    const OpenedCheckpoint equal = open(config, name, embedding);
    EXPECT_TRUE(equal.config.tie_word_embeddings);
    EXPECT_EQ(equal.tensors->Find("lm_head.weight"), nullptr);
    EXPECT_THAT(equal.warnings, IsEmpty());
    // A matrix of another shape is none of this model.
    const OpenedCheckpoint shape = open(config, name, {{8}, embedding.values});
    EXPECT_TRUE(shape.config.tie_word_embeddings);
  }
}

TEST(OpenCheckpointTest, RefusesMistralsOwnFormByName) {
  const TempDir directory;
  WriteFile(directory.path() / "params.json", "{}");
  const std::string refusal = directory.path().string() +
                              ": has a params.json, Mistral's own form of a model, and no "
                              "config.json; supported: config.json";
  EXPECT_EQ(RefusalOf<LoadError>([&] { OpenCheckpoint(directory.path()); }), refusal);
  EXPECT_EQ(RefusalOf<LoadError>([&] { ReadConfig(directory.path()); }), refusal);
}

// A plan is of the model that is loaded.
TEST(OpenCheckpointTest, TheConfigAloneTellsOfAnUntiedHeadIfTheTensorsAreThere) {
  const Stored embedding{{4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}};
  const Stored other{{4, 2}, {1, 2, 3, 4, 5, 6, 7, 9}};
  Json tied = published::SmolLm2();
  tied["tie_word_embeddings"] = true;
  const TempDir directory;
  WriteFile(directory.path() / "config.json", tied.dump());
  EXPECT_TRUE(ReadConfig(directory.path()).tie_word_embeddings);
  const auto write = [&](const std::string& file, const Stored& head) {
    WriteFile(directory.path() / file,
              Safetensors({{"model.embed_tokens.weight", embedding}, {"lm_head.weight", head}}));
  };
  write("model.safetensors", embedding);
  EXPECT_TRUE(ReadConfig(directory.path()).tie_word_embeddings);
  write("model.safetensors", other);
  EXPECT_FALSE(ReadConfig(directory.path()).tie_word_embeddings);
  // An index without its shards, as of a model that is not downloaded yet.
  std::filesystem::remove(directory.path() / "model.safetensors");
  WriteFile(directory.path() / "model.safetensors.index.json",
            R"({"weight_map": {"lm_head.weight": "a.safetensors",
                               "model.embed_tokens.weight": "a.safetensors"}})");
  EXPECT_TRUE(ReadConfig(directory.path()).tie_word_embeddings);
  write("a.safetensors", other);
  EXPECT_FALSE(ReadConfig(directory.path()).tie_word_embeddings);
}

}  // namespace
}  // namespace triptych::checkpoint::open_checkpoint_test
