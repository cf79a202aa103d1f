#include "engine/checkpoint/tensors/safetensors_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/checkpoint/tensors/open_tensors.h"
#include "engine/checkpoint/tensors/safetensors.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"

namespace triptych::checkpoint::safetensors_index_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ShardsTest : public testing::Test {
 protected:
  // A shard with tensors of one U8, each the first letter of its name.
  void WriteShard(const std::string& file, const std::vector<std::string>& tensors) const {
    std::vector<SafetensorsTensor> written;
    for (const std::string& name : tensors) {
      written.push_back({name, "U8", {1}, std::as_bytes(std::span(name).first(1))});
    }
    WriteSafetensors(directory_.path() / file, written);
  }
  void WriteIndex(const Json& map) const {
    WriteFile(index_, Json{{"metadata", {{"total_size", 3}}}, {"weight_map", map}}.dump());
  }
  // Three tensors in two shards.
  void WriteGood() const {
    WriteShard("model-00001-of-00002.safetensors", {"a", "b"});
    WriteShard("model-00002-of-00002.safetensors", {"c"});
    WriteIndex({{"a", "model-00001-of-00002.safetensors"},
                {"b", "model-00001-of-00002.safetensors"},
                {"c", "model-00002-of-00002.safetensors"}});
  }
  // Without the directory's name.
  std::string Refusal() const {
    std::string text = RefusalOf<LoadError>([&] { OpenTensors(directory_.path()); });
    const std::string path = directory_.path().string() + "/";
    for (size_t at = text.find(path); at != text.npos; at = text.find(path)) {
      text.erase(at, path.size());
    }
    return text;
  }

  const TempDir directory_;
  const std::filesystem::path index_ = directory_.path() / kIndexFile;
};

TEST_F(ShardsTest, AreOneSourceOfTensors) {
  WriteGood();
  const std::unique_ptr<const TensorSource> tensors = OpenTensors(directory_.path());
  EXPECT_EQ(tensors->name(), index_.string());
  EXPECT_THAT(tensors->TensorNames(), testing::UnorderedElementsAre("a", "b", "c"));
  for (const std::string name : {"a", "b", "c"}) {
    ASSERT_NE(tensors->Find(name), nullptr);
    EXPECT_EQ(tensors->Find(name)->dtype, "U8");
    EXPECT_THAT(tensors->Find(name)->shape, ElementsAre(1));
    std::string data(1, '\0');
    tensors->Read(name, std::as_writable_bytes(std::span(data)));
    EXPECT_EQ(data, name);
  }
  EXPECT_EQ(tensors->Find("d"), nullptr);
  std::vector<std::byte> two(2);
  EXPECT_THROW(tensors->Read("a", two), std::out_of_range);
  EXPECT_THROW(tensors->Read("d", two), std::out_of_range);
  EXPECT_THAT(TensorFiles(directory_.path()),
              ElementsAre(directory_.path() / "model-00001-of-00002.safetensors",
                          directory_.path() / "model-00002-of-00002.safetensors"));
}

TEST_F(ShardsTest, OneFileComesBeforeAnIndex) {
  WriteGood();
  WriteShard(kWeightsFile, {"x"});
  EXPECT_THAT(OpenTensors(directory_.path())->TensorNames(), ElementsAre("x"));
  EXPECT_THAT(TensorFiles(directory_.path()), ElementsAre(directory_.path() / kWeightsFile));
}

TEST_F(ShardsTest, WithNeitherTheFileIsWhatIsMissing) {
  EXPECT_EQ(Refusal(), "model.safetensors: cannot be read: No such file or directory");
}

TEST_F(ShardsTest, BrokenShardsAreNamed) {
  WriteGood();
  const std::filesystem::path shard = directory_.path() / "model-00002-of-00002.safetensors";
  const std::string good = ReadFile(shard);
  for (size_t size = 0; size < good.size(); ++size) {
    WriteFile(shard, good.substr(0, size));
    EXPECT_THAT(Refusal(), testing::StartsWith("model-00002-of-00002.safetensors: ")) << size;
  }
  std::filesystem::remove(shard);
  EXPECT_EQ(Refusal(),
            "model-00002-of-00002.safetensors: cannot be read: No such file or directory");
}

// Whichever file it is in: a line that names a file of the directory, or tensors that lie in one.
TEST_F(ShardsTest, RandomDamageNeverReadsOutside) {
  WriteGood();
  std::vector<std::pair<std::filesystem::path, std::string>> files;
  for (const char* name :
       {kIndexFile, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}) {
    files.emplace_back(directory_.path() / name, ReadFile(directory_.path() / name));
  }
  const size_t largest_shard = std::max(files[1].second.size(), files[2].second.size());
  std::mt19937 random(3);
  int accepted = 0, refused = 0;
  for (int round = 0; round < 2000; ++round) {
    const auto& [path, good] = files[random() % files.size()];
    std::string bytes = good;
    for (uint32_t flips = 1 + random() % 3; flips > 0; --flips) {
      char& byte = bytes[random() % bytes.size()];
      byte = static_cast<char>(byte ^ 1 << random() % 8);
    }
    WriteFile(path, bytes);
    try {
      const std::unique_ptr<const TensorSource> tensors = OpenTensors(directory_.path());
      for (const std::string& name : tensors->TensorNames()) {
        const uint64_t size = tensors->Find(name)->bytes;
        ASSERT_LE(size, largest_shard);
        std::vector<std::byte> data(size);
        tensors->Read(name, data);
      }
      ++accepted;
    } catch (const LoadError& e) {
      const std::string line = e.what();
      EXPECT_THAT(line, testing::StartsWith(directory_.path().string() + "/"));
      EXPECT_EQ(line.find_first_of("\n\x1b"), line.npos);
      ++refused;
    }
    WriteFile(path, good);
  }
  EXPECT_GT(accepted, 0);  // flips in the data, or in a name, do no harm
  EXPECT_GT(refused, 1000);
}

TEST_F(ShardsTest, TensorsAreWhereTheIndexPlacesThem) {
  WriteGood();
  WriteShard("model-00002-of-00002.safetensors", {"d"});
  EXPECT_EQ(Refusal(),
            "model-00002-of-00002.safetensors: tensor c is missing, which "
            "model.safetensors.index.json places here");
  WriteShard("model-00002-of-00002.safetensors", {"c", "a"});
  EXPECT_EQ(Refusal(),
            "model-00002-of-00002.safetensors: tensor a is here too; model.safetensors.index.json "
            "places it in model-00001-of-00002.safetensors");
}

TEST_F(ShardsTest, TensorsThatTheIndexDoesNotNameAreAbsent) {
  WriteGood();
  WriteShard("model-00002-of-00002.safetensors", {"c", "rotary_emb.inv_freq"});
  EXPECT_THAT(OpenTensors(directory_.path())->TensorNames(), testing::SizeIs(3));
}

TEST_F(ShardsTest, AShardThatShrinksIsAnError) {
  WriteGood();
  const std::unique_ptr<const TensorSource> tensors = OpenTensors(directory_.path());
  std::filesystem::resize_file(directory_.path() / "model-00001-of-00002.safetensors", 8);
  std::vector<std::byte> data(1);
  EXPECT_THROW(tensors->Read("a", data), LoadError);
  std::filesystem::remove(directory_.path() / "model-00001-of-00002.safetensors");
  EXPECT_THROW(tensors->Read("a", data), LoadError);
}

// As many as may be, of which hardly one is open at a time.
TEST_F(ShardsTest, ManyShards) {
  Json map;
  for (size_t i = 0; i < kMaxShards; ++i) {
    const std::string file = std::to_string(i) + ".safetensors";
    WriteShard(file, {std::to_string(i)});
    map[std::to_string(i)] = file;
  }
  WriteIndex(map);
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = open_files();
  EXPECT_THAT(OpenTensors(directory_.path())->TensorNames(), testing::SizeIs(kMaxShards));
  EXPECT_EQ(open_files(), before);
  map["more"] = "more.safetensors";
  WriteIndex(map);
  EXPECT_THAT(Refusal(), HasSubstr("weight_map is of more than 1024 files; allowed: at most 1024"));
}

std::string Refusal(const std::string& json) {
  return RefusalOf<LoadError>([&] { ParseSafetensorsIndex(json, "index.json"); });
}

TEST(SafetensorsIndexTest, RefusesWhatIsNone) {
  EXPECT_THAT(Refusal("{"), HasSubstr("index.json: not valid JSON"));
  EXPECT_EQ(Refusal("[]"), "index.json: must hold a JSON object");
  EXPECT_EQ(Refusal("{}"), "index.json: weight_map is missing");
  EXPECT_THAT(Refusal(R"({"weight_map": ["a"]})"), HasSubstr("weight_map is [\"a\"]; allowed"));
  EXPECT_THAT(Refusal(R"({"weight_map": {}})"), HasSubstr("allowed: at least one tensor"));
  EXPECT_THAT(Refusal(R"({"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}})"),
              HasSubstr("names \"a\" twice"));
}

TEST(SafetensorsIndexTest, FilesAreInItsDirectory) {
  for (const Json& file :
       {Json("../x.safetensors"), Json("/etc/x.safetensors"), Json("a/x.safetensors"),
        Json("a\\x.safetensors"), Json("..safetensors"), Json(std::string("a\0.safetensors", 14)),
        Json("x.bin"), Json(""), Json("."), Json(7), Json(nullptr), Json::array({"x.safetensors"}),
        Json(std::string(300, 'x') + ".safetensors")}) {
    EXPECT_THAT(Refusal(Json{{"weight_map", {{"t", file}}}}.dump()),
                AllOf(HasSubstr("index.json: weight_map[\"t\"] is "),
                      HasSubstr("allowed: the name of a .safetensors file next to it")))
        << file;
  }
  const auto places = ParseSafetensorsIndex(R"({"weight_map": {"t": "x.safetensors"}})", "i");
  EXPECT_THAT(places, ElementsAre(std::pair("t", "x.safetensors")));
}

}  // namespace
}  // namespace triptych::checkpoint::safetensors_index_test
