#include "engine/tools/import.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/checkpoint/llama2c_model.h"
#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/weights.h"
#include "engine/loading/loaded_model.h"
#include "tests/support/llama2c_file.h"
#include "tests/support/recording_sink.h"
#include "tests/support/refusal.h"
#include "tests/support/shared_data.h"
#include "tests/support/temp_dir.h"

namespace triptych::tools::import_test {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr Llama2cHeader kHeader = {8, 12, 2, 4, 2, 261, 16};

class ImportTest : public testing::Test {
 protected:
  ImportTest() {
    WriteFile(options_.model, Llama2cModel(kHeader));
    WriteFile(options_.tokenizer, Llama2cTokenizer());
  }

  std::string Refusal() const {
    return RefusalOf<std::exception>([&] { ImportModel(options_); });
  }
  std::vector<std::string> Written() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(options_.output)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  const TempDir dir_;
  ImportOptions options_{.model = dir_.path() / "model.bin",
                         .tokenizer = dir_.path() / "tok.bin",
                         .output = dir_.path() / "out" / "model",
                         .command = "triptych-model import model.bin"};
};

TEST_F(ImportTest, MakesACheckpoint) {
  ImportModel(options_);
  EXPECT_THAT(Written(), UnorderedElementsAre("config.json", "model.safetensors", "tokenizer.bin",
                                              "README.md"));
  const Checkpoint imported = LoadCheckpoint(options_.output, TensorFormat::kFloat32);
  const Checkpoint direct =
      ReadCheckpoint(checkpoint::OpenLlama2c(options_.model), TensorFormat::kFloat32);
  EXPECT_EQ(imported.config.attention, AttentionKind::kGqa);
  EXPECT_EQ(imported.config.vocab_size, 261);
  ASSERT_EQ(imported.weights.size(), direct.weights.size());
  for (const auto& [name, tensor] : direct.weights) {
    EXPECT_TRUE(at::equal(imported.weights.at(name), tensor)) << name;
  }
  // With heads of a residue in one group, the third head of four, which reads the second group,
  // becomes the second head: its row 4 becomes row 2.
  const at::Tensor q = imported.weights.at("model.layers.0.self_attn.q_proj.weight");
  const float first = (261 * 8 + 2 * 8) / 64.0F;  // of the file's queries
  EXPECT_EQ(q[0][0].item<float>(), first);
  EXPECT_EQ(q[2][0].item<float>(), first + 4 * 8 / 64.0F);
  EXPECT_EQ(checkpoint::LoadTokenizer(options_.output)->vocab_size(), 261);
  EXPECT_THAT(ReadFile(options_.output / "README.md"),
              HasSubstr("triptych-model import model.bin"));
}

TEST_F(ImportTest, RefusesWhatItCannotMakeAndLeavesNothing) {
  const std::string model = ReadFile(options_.model);
  WriteFile(options_.model, model.substr(0, model.size() - 4));
  EXPECT_THAT(Refusal(), HasSubstr("model.bin: is " + std::to_string(model.size() - 4) +
                                   " bytes; a model of its header takes"));
  WriteFile(options_.model, model);
  WriteFile(options_.tokenizer, "x");
  EXPECT_THAT(Refusal(), HasSubstr("tok.bin: ends inside a token"));
  WriteFile(options_.tokenizer, Llama2cTokenizer());
  WriteFile(options_.model, Llama2cModel({8, 12, 2, 4, 2, 260, 16}));
  EXPECT_THAT(Refusal(), HasSubstr("model.bin: vocab_size is 260; its tokenizer needs at least"));
  EXPECT_FALSE(std::filesystem::exists(options_.output));
}

TEST_F(ImportTest, TheOutputHoldsNothingBefore) {
  std::filesystem::create_directories(options_.output);
  WriteFile(options_.output / "README.md", "mine");
  EXPECT_THAT(Refusal(), HasSubstr("exists and is not an empty directory"));
  EXPECT_EQ(ReadFile(options_.output / "README.md"), "mine");
}

// A trained model generates the text of another implementation.
TEST_F(ImportTest, ARealModelWritesItsText) {
  const std::filesystem::path data = SharedData() / "stories260K";
  if (!std::filesystem::exists(data)) GTEST_SKIP() << "no " << data;
  options_.model = data / "stories260K.bin";
  options_.tokenizer = data / "tok512.bin";
  ImportModel(options_);
  const LoadedModel model = LoadModel({.name = "stories",
                                       .checkpoint = checkpoint::OpenCheckpoint(options_.output),
                                       .cache_format = CacheFormat::kFloat32,
                                       .backend = {.kv_cache_bytes = int64_t{1} << 24}},
                                      std::make_shared<kernels::KernelContext>(2));
  serving::Request request;
  request.id = "1";
  request.prompt = {model.tokenizer->begin_token().value()};
  request.max_new_tokens = 256;
  request.sampling.temperature = 0;
  const auto sink = std::make_shared<RecordingSink>();
  model.engine->Submit(std::move(request), sink);
  while (model.engine->Step()) {
  }
  EXPECT_EQ(sink->tokens.size(), 256u);
  EXPECT_EQ(sink->text + "\n", ReadFile(data / "expected_greedy_256.txt"));
}

}  // namespace
}  // namespace triptych::tools::import_test
