#include "engine/decoder/weights.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/checkpoint/config/config_file.h"
#include "engine/checkpoint/open_checkpoint.h"
#include "engine/checkpoint/tensors/safetensors.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/write_weights.h"
#include "engine/model/latent_shape.h"
#include "engine/tools/quantize.h"
#include "tests/support/published_checkpoints.h"
#include "tests/support/random_model.h"
#include "tests/support/refusal.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"

namespace triptych::weights_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

constexpr char kQuery[] = "model.layers.1.self_attn.q_proj.weight";

std::string Refusal(const std::filesystem::path& directory,
                    TensorFormat dtype = TensorFormat::kFloat32) {
  return RefusalOf<LoadError>([&] { LoadCheckpoint(directory, dtype); });
}

// Writes tensors as they are, whatever the config says.
void WriteTensors(const std::filesystem::path& file, const Weights& weights) {
  std::vector<checkpoint::SafetensorsTensor> tensors;
  for (const auto& [name, tensor] : weights) {
    const char* dtype = tensor.scalar_type() == at::kFloat      ? "F32"
                        : tensor.scalar_type() == at::kBFloat16 ? "BF16"
                        : tensor.scalar_type() == at::kHalf     ? "F16"
                        : tensor.scalar_type() == at::kDouble   ? "F64"
                                                                : "I64";
    tensors.push_back({name,
                       dtype,
                       tensor.sizes().vec(),
                       {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}});
  }
  checkpoint::WriteSafetensors(file, tensors);
}

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() { SaveCheckpoint(directory_.path(), config_, weights_); }

  std::filesystem::path weights_file() const { return directory_.path() / "model.safetensors"; }
  std::filesystem::path config_file() const { return directory_.path() / "config.json"; }

  const ModelConfig config_ = SmallModel(AttentionKind::kMla);
  Weights weights_ = Cast(RandomWeights(config_, 1), at::kFloat);
  const TempDir directory_;
};

TEST(Checkpoint, SaveAndLoadGiveTheSameModel) {
  for (NamedConfig named : EveryOption()) {
    for (const TensorFormat dtype : {TensorFormat::kFloat32, TensorFormat::kBFloat16}) {
      SCOPED_TRACE(named.name);
      named.config.torch_dtype = dtype;
      const Weights weights = Cast(RandomWeights(named.config, 2), ToScalarType(dtype));
      const TempDir directory;
      SaveCheckpoint(directory.path() / "new" / "folder", named.config, weights);
      const Checkpoint loaded = LoadCheckpoint(directory.path() / "new" / "folder", dtype);
      EXPECT_EQ(checkpoint::ToJson(loaded.config), checkpoint::ToJson(named.config));
      ASSERT_EQ(loaded.weights.size(), weights.size());
      for (const auto& [name, tensor] : weights) {
        EXPECT_TRUE(at::equal(loaded.weights.at(name), tensor)) << name;
        EXPECT_EQ(loaded.weights.at(name).scalar_type(), ToScalarType(dtype));
      }
    }
  }
}

TEST_F(CheckpointTest, LoadsInTheDtypeThatIsAskedFor) {
  const Checkpoint loaded = LoadCheckpoint(directory_.path(), TensorFormat::kBFloat16);
  for (const auto& [name, tensor] : weights_) {
    EXPECT_TRUE(at::equal(loaded.weights.at(name), tensor.to(at::kBFloat16))) << name;
  }
}

TEST_F(CheckpointTest, ReadsHalfPrecision) {
  weights_[kQuery] = weights_[kQuery].to(at::kHalf);
  WriteTensors(weights_file(), weights_);
  const Checkpoint loaded = LoadCheckpoint(directory_.path(), TensorFormat::kFloat32);
  EXPECT_TRUE(at::equal(loaded.weights.at(kQuery), weights_[kQuery].to(at::kFloat)));
}

TEST_F(CheckpointTest, SavingAgainReplacesBothFiles) {
  const Weights other = Cast(RandomWeights(config_, 3), at::kFloat);
  SaveCheckpoint(directory_.path(), config_, other);
  EXPECT_TRUE(
      at::equal(LoadCheckpoint(directory_.path(), TensorFormat::kFloat32).weights.at(kQuery),
                other.at(kQuery)));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 2);
}

std::vector<std::string> Names(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename());
  }
  return names;
}

TEST_F(CheckpointTest, TheCardIsKeptNextToTheModel) {
  for (const char* place : {"new", "slash/"}) {
    const std::filesystem::path directory = directory_.path() / place;
    SaveCheckpoint(directory, config_, weights_, "# A card\n");
    EXPECT_THAT(Names(directory),
                UnorderedElementsAre("config.json", "model.safetensors", "README.md"));
    EXPECT_EQ(ReadFile(directory / "README.md"), "# A card\n");
    LoadCheckpoint(directory, TensorFormat::kFloat32);
    SaveCheckpoint(directory, config_, weights_, "# Another\n");
    EXPECT_EQ(ReadFile(directory / "README.md"), "# Another\n");
  }
}

TEST(Checkpoint, ANewDirectoryAppearsWholeOrNotAtAll) {
  const ModelConfig config = SmallModel(AttentionKind::kMla);
  const Weights weights = Cast(RandomWeights(config, 1), at::kFloat);
  const TempDir directory;
  Weights fewer = weights;
  fewer.erase("model.norm.weight");
  EXPECT_ANY_THROW(SaveCheckpoint(directory.path() / "model", config, fewer, "card"));
  EXPECT_THAT(Names(directory.path()), IsEmpty());

  // Leftovers of a killed run, or files of others, do not get in and are not deleted.
  for (const char* other : {"model.partial", "model.partial-0123abcd"}) {
    std::filesystem::create_directory(directory.path() / other);
    WriteFile(directory.path() / other / "stray", "");
  }
  SaveCheckpoint(directory.path() / "model", config, weights);
  EXPECT_THAT(Names(directory.path()),
              UnorderedElementsAre("model", "model.partial", "model.partial-0123abcd"));
  EXPECT_TRUE(std::filesystem::exists(directory.path() / "model.partial" / "stray"));
  EXPECT_THAT(Names(directory.path() / "model"),
              UnorderedElementsAre("config.json", "model.safetensors"));
}

TEST(Checkpoint, APlaceThatCannotBeWrittenIsNamed) {
  const ModelConfig config = SmallModel(AttentionKind::kMla);
  const Weights weights = Cast(RandomWeights(config, 1), at::kFloat);
  const TempDir directory;
  const std::filesystem::path file = directory.path() / "file";
  WriteFile(file, "mine");
  for (const std::filesystem::path& place : {file, file / "model", file / "a" / "model"}) {
    try {
      SaveCheckpoint(place, config, weights, "card");
      ADD_FAILURE() << place;
    } catch (const std::runtime_error& e) {
      EXPECT_THAT(e.what(), HasSubstr(file.string()));
    }
  }
  EXPECT_THAT(Names(directory.path()), ElementsAre("file"));
  EXPECT_EQ(ReadFile(file), "mine");
}

// None of these can be renamed onto: `.`, a symbolic link, and what a mount is like.
TEST(Checkpoint, IsWrittenInsideADirectoryThatIsThere) {
  const ModelConfig config = SmallModel(AttentionKind::kMla);
  const Weights weights = Cast(RandomWeights(config, 1), at::kFloat);
  const TempDir directory;
  const std::filesystem::path empty = directory.path() / "empty", link = directory.path() / "link";
  std::filesystem::create_directory(empty);
  std::filesystem::create_directory_symlink(empty, link);
  SaveCheckpoint(link, config, weights, "card");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_THAT(Names(empty), UnorderedElementsAre("config.json", "model.safetensors", "README.md"));
  LoadCheckpoint(empty, TensorFormat::kFloat32);

  const std::filesystem::path here = std::filesystem::current_path();
  std::filesystem::create_directory(directory.path() / "dot");
  std::filesystem::current_path(directory.path() / "dot");
  SaveCheckpoint(".", config, weights);
  std::filesystem::current_path(here);
  LoadCheckpoint(directory.path() / "dot", TensorFormat::kFloat32);
  EXPECT_THAT(Names(directory.path()), UnorderedElementsAre("empty", "link", "dot"));
}

// A config that describes other weights would be worse than none. A directory in a file's place is
// what cannot be replaced.
TEST_F(CheckpointTest, WithoutAllItsFilesThereIsNoNewModel) {
  const std::string config = ReadFile(config_file());
  std::filesystem::remove(weights_file());
  std::filesystem::create_directory(weights_file());
  EXPECT_ANY_THROW(SaveCheckpoint(directory_.path(), config_, weights_, "card"));
  EXPECT_EQ(ReadFile(config_file()), config);
  EXPECT_THAT(Names(directory_.path()), UnorderedElementsAre("config.json", "model.safetensors"));

  std::filesystem::remove(weights_file());
  std::filesystem::remove(config_file());
  std::filesystem::create_directory(config_file());
  EXPECT_ANY_THROW(SaveCheckpoint(directory_.path(), config_, weights_, "card"));
  EXPECT_THAT(Names(directory_.path()), UnorderedElementsAre("config.json"));
}

// The card is the last that can fail: were the config there by then, this would be a model.
TEST_F(CheckpointTest, TheConfigComesLast) {
  std::filesystem::remove(config_file());
  std::filesystem::create_directory(directory_.path() / "README.md");
  EXPECT_ANY_THROW(SaveCheckpoint(directory_.path(), config_, weights_, "card"));
  EXPECT_FALSE(std::filesystem::exists(config_file()));
}

// They would pass every other check, and answer no request.
TEST_F(CheckpointTest, WeightsThatAreNotFiniteAreNamed) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float largest = std::numeric_limits<float>::max();
  for (const at::ScalarType stored : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const float number : {std::nanf(""), infinity, -infinity}) {
      Weights broken = weights_;
      broken[kQuery] = broken[kQuery].to(stored).clone();
      broken[kQuery][-1][-1] = number;
      WriteTensors(weights_file(), broken);
      for (const TensorFormat format : {TensorFormat::kFloat32, TensorFormat::kBFloat16}) {
        EXPECT_EQ(Refusal(directory_.path(), format),
                  weights_file().string() + ": tensor " + kQuery +
                      " holds numbers that are not finite in " + std::string(Name(format)) +
                      "; allowed: finite ones");
      }
    }
  }
  weights_[kQuery][0][0] = largest;  // rounds to infinity
  WriteTensors(weights_file(), weights_);
  EXPECT_EQ(Refusal(directory_.path(), TensorFormat::kFloat32), "accepted");
  EXPECT_THAT(Refusal(directory_.path(), TensorFormat::kBFloat16),
              AllOf(HasSubstr(kQuery), HasSubstr("not finite in bfloat16")));
}

TEST_F(CheckpointTest, NamesOfTensorsInMessagesArePrintable) {
  Weights more = weights_;
  std::string name = "zzz\x1b[2J\n";
  while (name.size() < 10'000) name += name;
  more[name] = at::zeros({3});
  WriteTensors(weights_file(), more);
  const std::string refusal = Refusal(directory_.path());
  EXPECT_THAT(refusal, HasSubstr("tensor zzz\\x1b[2J\\x0a"));
  EXPECT_EQ(refusal.find_first_of("\x1b\n"), refusal.npos);
  EXPECT_LT(refusal.size(), 1000);
}

// Whoever serves a model may not wait for a FIFO, nor read a device to its end.
TEST_F(CheckpointTest, SpecialFilesAreRefused) {
  for (const std::filesystem::path& file : {weights_file(), config_file()}) {
    std::filesystem::remove(file);
    ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
    EXPECT_THAT(Refusal(directory_.path()),
                AllOf(HasSubstr(file.string()), HasSubstr("Is a FIFO; allowed: a regular file")));
    std::filesystem::remove(file);
    std::filesystem::create_symlink("/dev/zero", file);
    EXPECT_THAT(Refusal(directory_.path()), AllOf(HasSubstr(file.string()), HasSubstr("device")));
  }
}

// A limit on the size of files stands in for a disk that fills up on the way.
TEST(Checkpoint, AFullDiskLeavesNothingBehind) {
  const ModelConfig config = SmallModel(AttentionKind::kMla);
  const Weights weights = Cast(RandomWeights(config, 1), at::kFloat);
  const TempDir directory;
  std::filesystem::create_directory(directory.path() / "empty");
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited;
  getrlimit(RLIMIT_FSIZE, &unlimited);
  const rlimit limited{.rlim_cur = 8192, .rlim_max = unlimited.rlim_max};
  for (const char* place : {"absent", "empty"}) {
    setrlimit(RLIMIT_FSIZE, &limited);
    std::string refusal;
    try {
      SaveCheckpoint(directory.path() / place, config, weights, "card");
    } catch (const std::runtime_error& e) {
      refusal = e.what();
    }
    setrlimit(RLIMIT_FSIZE, &unlimited);
    EXPECT_THAT(refusal, AllOf(HasSubstr("model.safetensors"), HasSubstr("cannot be written")));
  }
  std::signal(SIGXFSZ, SIG_DFL);
  EXPECT_THAT(Names(directory.path()), ElementsAre("empty"));
  EXPECT_THAT(Names(directory.path() / "empty"), IsEmpty());
}

TEST_F(CheckpointTest, EveryMissingTensorIsNamed) {
  for (const TensorSpec& spec : ExpectedTensors(config_)) {
    Weights fewer = weights_;
    ASSERT_EQ(fewer.erase(spec.name), 1u);
    WriteTensors(weights_file(), fewer);
    EXPECT_THAT(Refusal(directory_.path()), AllOf(HasSubstr(weights_file().string()),
                                                  HasSubstr(spec.name), HasSubstr("missing")));
  }
}

TEST_F(CheckpointTest, EveryWrongShapeIsNamed) {
  for (const TensorSpec& spec : ExpectedTensors(config_)) {
    Weights wrong = weights_;
    wrong[spec.name] = wrong[spec.name].unsqueeze(0);  // as many elements
    WriteTensors(weights_file(), wrong);
    EXPECT_THAT(Refusal(directory_.path()), AllOf(HasSubstr(weights_file().string()),
                                                  HasSubstr(spec.name), HasSubstr("shape [1, ")));
  }
}

TEST_F(CheckpointTest, TransposedIsNotAccepted) {
  weights_[kQuery] = weights_["model.layers.0.mlp.down_proj.weight"].clone();  // [24, 43]
  WriteTensors(weights_file(), weights_);
  EXPECT_THAT(Refusal(directory_.path()),
              AllOf(HasSubstr(kQuery), HasSubstr("[24, 43]"), HasSubstr("[24, 24]")));
}

TEST_F(CheckpointTest, LeftOverTensorIsNamed) {
  for (const char* extra : {"lm_head.bias", "model.layers.2.self_attn.q_proj.weight", "zzz"}) {
    Weights more = weights_;
    more[extra] = at::zeros({3});
    WriteTensors(weights_file(), more);
    EXPECT_THAT(Refusal(directory_.path()),
                AllOf(HasSubstr(weights_file().string()), HasSubstr(extra)));
  }
}

TEST_F(CheckpointTest, UnusableDtypeIsNamed) {
  for (const at::ScalarType dtype : {at::kDouble, at::kLong}) {
    Weights wrong = weights_;
    wrong[kQuery] = wrong[kQuery].to(dtype);
    WriteTensors(weights_file(), wrong);
    EXPECT_THAT(Refusal(directory_.path()),
                AllOf(HasSubstr(weights_file().string()), HasSubstr(kQuery), HasSubstr("64"),
                      HasSubstr("F32, BF16, F16")));
  }
}

TEST_F(CheckpointTest, ConfigOfAnotherModelIsRefused) {
  ModelConfig other = config_;
  other.kv_lora_rank = {7, 8};
  WriteFile(config_file(), checkpoint::ToJson(other));
  EXPECT_THAT(Refusal(directory_.path()), HasSubstr("model.layers.1.self_attn.kv_a_proj_with_mqa"));
  WriteFile(config_file(), checkpoint::ToJson(SmallModel(AttentionKind::kMha)));
  EXPECT_THAT(Refusal(directory_.path()), HasSubstr("model.layers.0.self_attn.k_proj.weight"));
}

// All that a source gives.
void TakeAll(WeightSource& source, const ModelConfig& config) {
  for (const std::string& prefix : PartPrefixes(config)) source.Take(prefix);
}

TEST_F(CheckpointTest, AFileThatShrinksWhileItIsReadIsNamed) {
  CheckpointReader reader(checkpoint::OpenCheckpoint(directory_.path()), TensorFormat::kFloat32);
  TakeAll(reader, reader.config());
  const uintmax_t bytes = std::filesystem::file_size(weights_file());
  std::filesystem::resize_file(weights_file(), bytes - 1);
  try {
    TakeAll(reader, reader.config());
    ADD_FAILURE() << "accepted";
  } catch (const LoadError& e) {
    EXPECT_EQ(e.what(), weights_file().string() + ": ends at byte " + std::to_string(bytes - 1) +
                            "; it had " + std::to_string(bytes) + " bytes when it was opened");
  }
}

// Rows and heads are brought in order layer by layer: what is of several cannot be asked for.
TEST_F(CheckpointTest, APartIsOfNoLayerOrOfOne) {
  CheckpointReader reader(checkpoint::OpenCheckpoint(directory_.path()), TensorFormat::kFloat32);
  for (const std::string prefix : {"", "m", "model.", "model.layers.", "model.layers.1",
                                   "model.layers.01.", "model.layers.x"}) {
    EXPECT_THROW(reader.Take(prefix), std::invalid_argument) << prefix;
  }
  EXPECT_EQ(reader.Take(kEmbeddingName).size(), 1u);
  EXPECT_GT(reader.Take("model.layers.1.").size(), 1u);
  EXPECT_EQ(reader.Take(kQuery).size(), 1u);
}

// In as little room as is exact.
TEST(Checkpoint, TensorsThatAreNotRoundedStayAsStored) {
  for (const TensorFormat stored : {TensorFormat::kBFloat16, TensorFormat::kFloat32}) {
    ModelConfig config = SmallModel(AttentionKind::kGqa);
    config.torch_dtype = stored;
    const TempDir directory;
    SaveCheckpoint(directory.path(), config, RandomWeights(config, 1));
    CheckpointReader reader(checkpoint::OpenCheckpoint(directory.path()), std::nullopt);
    for (const auto& [name, tensor] : reader.Take(MlpPrefix(0))) {
      EXPECT_EQ(tensor.scalar_type(), ToScalarType(stored)) << name;
    }
  }
}

// Every shard, whichever it is and whenever it is cut.
TEST(Checkpoint, AShardThatIsCutOffIsNamed) {
  const auto config = published::EveryFamily().front().config;
  const TempDir directory;
  published::WriteCheckpoint(directory.path(), config, published::RandomTensors(config, 1), 3);
  for (const int shard : {1, 2, 3}) {
    const std::filesystem::path file =
        directory.path() / ("model-0000" + std::to_string(shard) + "-of-00003.safetensors");
    CheckpointReader reader(checkpoint::OpenCheckpoint(directory.path()), TensorFormat::kFloat32);
    const std::string whole = ReadFile(file);
    for (const size_t bytes : {whole.size() - 1, whole.size() / 2, size_t{7}, size_t{0}}) {
      WriteFile(file, whole.substr(0, bytes));
      EXPECT_THAT(Refusal(directory.path()), StartsWith(file.string() + ": "));
      try {
        TakeAll(reader, reader.config());
        ADD_FAILURE() << "accepted";
      } catch (const LoadError& e) {
        EXPECT_THAT(e.what(), StartsWith(file.string() + ": ends at byte "));
      }
    }
    WriteFile(file, whole);
    TakeAll(reader, reader.config());
  }
}

TEST_F(CheckpointTest, MissingFilesAreNamed) {
  std::filesystem::remove(weights_file());
  EXPECT_THAT(Refusal(directory_.path()), HasSubstr(weights_file().string()));
  std::filesystem::remove(config_file());
  EXPECT_THAT(Refusal(directory_.path()), HasSubstr(config_file().string()));
}

TEST_F(CheckpointTest, BadConfigIsNamed) {
  for (const char* text : {"", "{", "[]", "{}", "null"}) {
    WriteFile(config_file(), text);
    EXPECT_THAT(Refusal(directory_.path()), HasSubstr(config_file().string())) << text;
  }
}

// A file cut anywhere, or with bytes changed, is refused or gives a model of the right shape.
TEST_F(CheckpointTest, RandomDamageNeverCrashes) {
  const std::string weights = ReadFile(weights_file()), config = ReadFile(config_file());
  std::mt19937_64 generator(4);
  uint64_t header = 0;
  std::memcpy(&header, weights.data(), sizeof(header));
  int accepted = 0, refused = 0;
  const auto load = [&] {
    try {
      const Checkpoint loaded = LoadCheckpoint(directory_.path(), TensorFormat::kFloat32);
      for (const TensorSpec& spec : ExpectedTensors(loaded.config)) {
        ASSERT_EQ(loaded.weights.at(spec.name).sizes(), spec.shape);
      }
      ++accepted;
    } catch (const LoadError& e) {
      EXPECT_THAT(e.what(), HasSubstr(directory_.path().string()));
      ++refused;
    }
  };
  for (int round = 0; round < 300; ++round) {
    std::string damaged = weights;
    const bool in_header = round % 3 != 0;
    damaged[generator() % (in_header ? header + 8 : damaged.size())] ^=
        static_cast<char>(1 << generator() % 8);
    WriteFile(weights_file(), damaged);
    load();
  }
  for (int round = 0; round < 100; ++round) {
    WriteFile(weights_file(), weights.substr(0, generator() % weights.size()));
    load();
  }
  WriteFile(weights_file(), weights);
  for (int round = 0; round < 300; ++round) {
    std::string damaged = config;
    damaged[generator() % damaged.size()] ^= static_cast<char>(1 << generator() % 8);
    WriteFile(config_file(), damaged);
    load();
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 400);
}

TEST(Checkpoint, ExpectedTensorsHaveThePublishedNames) {
  const auto names = [](const ModelConfig& config) {
    std::vector<std::string> all;
    for (const TensorSpec& spec : ExpectedTensors(config)) all.push_back(spec.name);
    return all;
  };
  ModelConfig mla = SmallModel(AttentionKind::kMla);
  mla.num_hidden_layers = 1;
  mla.kv_lora_rank = {7};
  mla.kv_a_layernorm = true;
  EXPECT_THAT(
      names(mla),
      ElementsAre("model.embed_tokens.weight", "model.embed_positions.weight",
                  "model.layers.0.input_layernorm.weight", "model.layers.0.self_attn.q_proj.weight",
                  "model.layers.0.self_attn.kv_a_proj_with_mqa.weight",
                  "model.layers.0.self_attn.kv_a_layernorm.weight",
                  "model.layers.0.self_attn.kv_b_proj.weight",
                  "model.layers.0.self_attn.o_proj.weight",
                  "model.layers.0.post_attention_layernorm.weight",
                  "model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight",
                  "model.layers.0.mlp.down_proj.weight", "model.norm.weight", "lm_head.weight"));
  ModelConfig mha = SmallModel(AttentionKind::kMha);
  mha.num_hidden_layers = 1;
  mha.position_embedding = PositionEmbedding::kRope;
  mha.mlp = MlpKind::kGelu;
  mha.hidden_act = HiddenAct::kGelu;
  mha.tie_word_embeddings = true;
  EXPECT_THAT(
      names(mha),
      ElementsAre(
          "model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
          "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight",
          "model.layers.0.self_attn.v_proj.weight", "model.layers.0.self_attn.o_proj.weight",
          "model.layers.0.post_attention_layernorm.weight", "model.layers.0.mlp.up_proj.weight",
          "model.layers.0.mlp.down_proj.weight", "model.norm.weight"));
}

TEST(ParameterBytesTest, OnlyMatricesAreIntegers) {
  ModelConfig config = SmallModel(AttentionKind::kMha);  // D 24, F 43, vocabulary 258, two layers
  ASSERT_EQ(config.position_embedding, PositionEmbedding::kLearned);
  ASSERT_FALSE(config.tie_word_embeddings);
  const int64_t count = ParameterCount(config);
  EXPECT_EQ(ParameterBytes(config, WeightFormat::kFloat32), 4 * count);
  EXPECT_EQ(ParameterBytes(config, WeightFormat::kBFloat16), 2 * count);
  // Rows of 24 and of 43 weights are one and two groups.
  const int64_t groups = 2 * 258 + 2 * (4 * 24 + 2 * 43 + 24 * 2);
  const int64_t others = 64 * 24 + 24 + 2 * 2 * 24;  // positions and norms
  EXPECT_EQ(ParameterBytes(config, WeightFormat::kInt8), 34 * groups + 4 * others);
  EXPECT_EQ(ParameterBytes(config, WeightFormat::kInt4), 18 * groups + 4 * others);
  // Embedding and output matrix, of 258 rows of 24 each.
  EXPECT_EQ(ParameterBytes(config, {WeightFormat::kInt4, WeightFormat::kBFloat16}),
            18 * (groups - 2 * 258) + 4 * others + 2 * 2 * 258 * 24);
}

// ---- Integers --------------------------------------------------------------------------------

ModelConfig Integers(const ModelConfig& config, WeightFormat format, bool embeddings = true) {
  ModelConfig stored = config;
  stored.quantization = {.format = format, .embeddings = embeddings};
  return stored;
}

TEST(IntegerCheckpoint, LoadsAsTheRoundedMatrices) {
  for (const NamedConfig& named : EveryOption()) {
    for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
      for (const bool embeddings : {true, false}) {
        SCOPED_TRACE(named.name + std::string(Name(format)));
        ModelConfig modular = named.config;  // as every checkpoint is that the tools write
        modular.head_grouping = HeadGrouping::kModular;
        modular.rope_interleave = true;
        const ModelConfig stored = Integers(modular, format, embeddings);
        const Weights weights = Cast(RandomWeights(stored, 3), at::kFloat);
        const TempDir directory;
        SaveCheckpoint(directory.path(), stored, weights);
        const Checkpoint loaded = LoadCheckpoint(directory.path(), TensorFormat::kFloat32);
        EXPECT_FALSE(loaded.config.quantization.has_value());
        const std::set<std::string> integers = IntegerTensors(stored);
        for (const auto& [name, weight] : weights) {
          const at::Tensor expected =
              integers.contains(name) ? tools::RoundToNearest(weight, format)
                                      : weight.to(ToScalarType(stored.torch_dtype)).to(at::kFloat);
          EXPECT_TRUE(at::equal(loaded.weights.at(name), expected)) << name;
        }
      }
    }
  }
}

TEST(IntegerCheckpoint, MatricesThatServingTransformsStayNumbers) {
  ModelConfig mla = Integers(SmallModel(AttentionKind::kMla), WeightFormat::kInt8, false);
  mla.num_hidden_layers = 2;
  mla.kv_lora_rank = {1, 24};
  const std::vector<ReducedForm> forms = ReducedForms(mla);
  ASSERT_THAT(forms, ElementsAre(ReducedForm::kPremultiplied, ReducedForm::kFactored));
  const std::set<std::string> names = IntegerTensors(mla);
  const auto has = [&](const std::string& name) { return names.contains(name); };
  for (const int64_t layer : {0, 1}) {
    const std::string attention = AttentionPrefix(layer);
    EXPECT_FALSE(has(attention + "kv_b_proj.weight"));
    EXPECT_TRUE(has(attention + "kv_a_proj_with_mqa.weight"));
    EXPECT_EQ(has(attention + "q_proj.weight"), layer == 1);
    EXPECT_EQ(has(attention + "o_proj.weight"), layer == 1);
    EXPECT_TRUE(has(LayerPrefix(layer) + "mlp.down_proj.weight"));
    EXPECT_FALSE(has(LayerPrefix(layer) + "input_layernorm.weight"));
  }
  EXPECT_FALSE(has(kEmbeddingName));
  EXPECT_FALSE(has(kPositionsName));
  mla.quantization->embeddings = true;
  EXPECT_TRUE(IntegerTensors(mla).contains(kEmbeddingName));
  EXPECT_THAT(IntegerTensors(SmallModel(AttentionKind::kMla)), IsEmpty());
}

TEST(IntegerCheckpoint, RefusesWhatDoesNotFit) {
  const ModelConfig config = Integers(SmallModel(AttentionKind::kMha), WeightFormat::kInt4);
  const TempDir directory;
  SaveCheckpoint(directory.path(), config, Cast(RandomWeights(config, 4), at::kFloat));
  const std::filesystem::path file = directory.path() / "model.safetensors";
  const checkpoint::SafetensorsFile whole(file);
  // The same file with one tensor of its own, or without it.
  const auto with = [&](const std::string& changed,
                        std::optional<checkpoint::SafetensorsTensor> as) {
    std::vector<std::vector<std::byte>> kept;
    std::vector<checkpoint::SafetensorsTensor> tensors;
    for (const auto& [name, entry] : whole.entries()) {
      if (name == changed) continue;
      whole.Read(name, kept.emplace_back(entry.bytes));
      tensors.push_back({name, entry.dtype, entry.shape, kept.back()});
    }
    if (as) tensors.push_back(*as);
    const TempDir other;
    SaveCheckpoint(other.path(), config, Cast(RandomWeights(config, 4), at::kFloat));
    checkpoint::WriteSafetensors(other.path() / "model.safetensors", tensors);
    return Refusal(other.path());
  };
  const std::string scales = std::string(kQuery) + "_scale";
  const std::vector<std::byte> ones(24 * 24 * 4, std::byte{0xff});  // bfloat16: NaN
  EXPECT_THAT(with(scales, {}), HasSubstr("tensor " + scales + " is missing"));
  EXPECT_THAT(
      with(kQuery,
           checkpoint::SafetensorsTensor{kQuery, "I8", {24, 12}, std::span(ones).first(288)}),
      AllOf(HasSubstr(std::string("tensor ") + kQuery), HasSubstr("allowed: U8")));
  EXPECT_THAT(
      with(kQuery,
           checkpoint::SafetensorsTensor{kQuery, "U8", {24, 24}, std::span(ones).first(576)}),
      HasSubstr("has shape [24, 24]; the config needs [24, 12]"));
  EXPECT_THAT(
      with(scales,
           checkpoint::SafetensorsTensor{scales, "BF16", {24, 1}, std::span(ones).first(48)}),
      HasSubstr("not finite"));
  EXPECT_THAT(
      with(scales,
           checkpoint::SafetensorsTensor{scales, "F32", {24, 1}, std::span(ones).first(96)}),
      HasSubstr("allowed: BF16"));
  EXPECT_THAT(with("",
                   checkpoint::SafetensorsTensor{
                       "model.norm.weight_scale", "BF16", {24}, std::span(ones).first(48)}),
              HasSubstr("does not belong"));
}

}  // namespace
}  // namespace triptych::weights_test
