#include "engine/checkpoint/tokenizer/chat_templates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "tests/support/gguf_file.h"
#include "tests/support/small_gguf.h"
#include "tests/support/temp_dir.h"

namespace triptych::checkpoint::chat_templates_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Pair;
using ::testing::ThrowsMessage;
using ::testing::UnorderedElementsAre;

class ChatTemplatesTest : public ::testing::Test {
 protected:
  ChatTemplatesTest() { checkpoint_.path = directory_.path(); }

  void Write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = directory_.path() / file;
    std::filesystem::create_directories(path.parent_path());
    WriteFile(path, text);
  }
  std::map<std::string, std::string> Texts() const { return ReadChatTemplates(checkpoint_).texts; }

  const TempDir directory_;
  OpenedCheckpoint checkpoint_;
};

TEST_F(ChatTemplatesTest, ADirectorysAreInThreePlaces) {
  EXPECT_THAT(Texts(), IsEmpty());
  Write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  EXPECT_THAT(Texts(), IsEmpty());
  EXPECT_EQ(ReadChatTemplates(checkpoint_).special_tokens.at("bos_token"), "<s>");
  Write("tokenizer_config.json", R"({"chat_template": "a"})");
  EXPECT_THAT(Texts(), ElementsAre(Pair("default", "a")));
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "b"},
      {"name": "default", "template": "c"}, {"name": "rag", "template": "d"},
      3, {"name": 4, "template": "e"}, {"name": "f"}]})");
  EXPECT_THAT(Texts(), ElementsAre(Pair("default", "c"), Pair("rag", "d"), Pair("tool_use", "b")));
  Write("additional_chat_templates/rag.jinja", "g");
  Write("additional_chat_templates/rag.jinja.orig", "h");
  Write("additional_chat_templates/default.jinja", "i");
  EXPECT_THAT(Texts(), ElementsAre(Pair("default", "i"), Pair("rag", "g"), Pair("tool_use", "b")));
  Write("chat_template.jinja", "j");
  EXPECT_THAT(Texts(), ElementsAre(Pair("default", "j"), Pair("rag", "g"), Pair("tool_use", "b")));
  Write("tokenizer_config.json", "{");
  EXPECT_THAT([&] { Texts(); },
              ThrowsMessage<LoadError>(HasSubstr("tokenizer_config.json: not valid JSON")));
}

TEST_F(ChatTemplatesTest, AGgufFilesAreInItsMetadata) {
  const std::filesystem::path path = directory_.path() / "m.gguf";
  const auto texts = [&](const std::vector<std::pair<std::string, std::string>>& metadata) {
    GgufBuilder file;
    for (const auto& [key, text] : metadata) file.Add(key, text);
    WriteFile(path, file.Bytes());
    OpenedCheckpoint checkpoint;
    checkpoint.path = path;
    checkpoint.gguf = std::make_shared<const GgufFile>(path);
    return ReadChatTemplates(checkpoint).texts;
  };
  EXPECT_THAT(texts({{"tokenizer.chat_templates", "x"}}), IsEmpty());
  EXPECT_THAT(texts({{"tokenizer.chat_template.default", "a"}}), ElementsAre(Pair("default", "a")));
  EXPECT_THAT(texts({{"tokenizer.chat_template", "b"},
                     {"tokenizer.chat_template.default", "a"},
                     {"tokenizer.chat_template.tool_use", "c"}}),
              ElementsAre(Pair("default", "b"), Pair("tool_use", "c")));
}

TEST_F(ChatTemplatesTest, NamesThatAreNoFileNamesArePassedOver) {
  Json list = Json::array();
  for (const std::string& name : {std::string("../x"), std::string("a/b"), std::string(),
                                  std::string(".a"), std::string(65, 'n'), std::string("a\nb")}) {
    list.push_back({{"name", name}, {"template", "t"}});
  }
  list.push_back({{"name", std::string(64, 'n')}, {"template", "t"}});
  Write("tokenizer_config.json", Json{{"chat_template", list}}.dump());
  EXPECT_THAT(Texts(), ElementsAre(Pair(std::string(64, 'n'), "t")));
  const std::vector<std::string> warnings = ReadChatTemplates(checkpoint_).warnings;
  EXPECT_EQ(warnings.size(), 6u);
  EXPECT_THAT(warnings, Contains(HasSubstr("the chat template \"../x\" of tokenizer_config.json")));
}

TEST_F(ChatTemplatesTest, NumberAndSizesAreBounded) {
  Json list = Json::array();
  for (size_t i = 0; i < kMaxTemplates; ++i) {
    list.push_back({{"name", "t" + std::to_string(i)}, {"template", "t"}});
  }
  Write("tokenizer_config.json", Json{{"chat_template", list}}.dump());
  EXPECT_EQ(Texts().size(), kMaxTemplates);
  Write("chat_template.jinja", "one more");
  EXPECT_THAT([&] { Texts(); },
              ThrowsMessage<LoadError>(HasSubstr("chat templates or more; allowed: at most 64")));
  const std::string long_text(kMaxTemplateBytes + 1, 'x');
  Write("tokenizer_config.json", Json{{"chat_template", long_text}}.dump());
  EXPECT_THAT([&] { Texts(); }, ThrowsMessage<LoadError>(HasSubstr(
                                    "chat_template is 1048577 bytes; allowed: at most 1048576")));
  Write("tokenizer_config.json", "{}");
  Write("additional_chat_templates/x.jinja", long_text);
  EXPECT_THROW(Texts(), LoadError);
}

// Checkpoints that are made of one have all of its templates.
TEST_F(ChatTemplatesTest, AreFilesOfOtherCheckpoints) {
  Write("additional_chat_templates/rag.jinja", "a");
  Write("chat_template.jinja", "b");
  EXPECT_THAT(TokenizerFiles(directory_.path()),
              UnorderedElementsAre(Pair("additional_chat_templates/rag.jinja", "a"),
                                   Pair("chat_template.jinja", "b")));
  const std::filesystem::path path = directory_.path() / "m.gguf";
  GgufBuilder file;
  file.Add("tokenizer.chat_template.default", "c").Add("tokenizer.chat_template.tool_use", "d");
  WriteFile(path, file.Bytes());
  EXPECT_THAT(ChatTemplateFiles(GgufFile(path)),
              UnorderedElementsAre(Pair("additional_chat_templates/tool_use.jinja", "d"),
                                   Pair("chat_template.jinja", "c")));
}

}  // namespace
}  // namespace triptych::checkpoint::chat_templates_test
