// Tests of the choice of a model's chat template between its own ones and the options.
#include "server/choose_chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "engine/base/error.h"
#include "engine/text/byte_tokenizer.h"
#include "server/model_log.h"

namespace triptych::server::choose_chat_template_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kBroken = "{% include 'x' %}";

struct Choice {
  std::shared_ptr<const ChatTemplate> chosen;
  ModelOrigins origins;

  std::string name() const { return chosen == nullptr ? "" : chosen->name(); }
  bool usable() const { return chosen != nullptr && chosen->error().empty(); }
};

// `own`: templates of the model. `set`: by its options. `otherwise`: by --chat-template.
Choice Choose(std::map<std::string, std::string> own, std::optional<ChatTemplateText> set,
              const std::optional<ChatTemplateText>& otherwise) {
  Choice choice;
  ModelOptions model;
  model.name = "m";
  model.chat_template = std::move(set);
  const checkpoint::OwnChatTemplates templates{.texts = std::move(own)};
  choice.chosen = ChooseChatTemplate(model, templates, ByteTokenizer(), otherwise, choice.origins);
  return choice;
}

// A warning that the template `name` cannot be used, with what follows.
testing::Matcher<std::string> Unusable(const std::string& name, const std::string& instead) {
  return AllOf(HasSubstr("its chat template " + name + " cannot be used: line 1: the tag"),
               HasSubstr(instead));
}

TEST(ChooseChatTemplateTest, TheDefaultOneIsServedBeforeTheServersOption) {
  const Choice choice = Choose({{"default", "a"}}, {}, BuiltInTemplate("plain"));
  EXPECT_EQ(choice.name(), "own");
  EXPECT_THAT(choice.origins.warnings, IsEmpty());
}

TEST(ChooseChatTemplateTest, AnOptionTakesThePlaceOfABrokenDefaultOne) {
  const Choice choice =
      Choose({{"default", kBroken}, {"rag", "b"}}, {}, OwnTemplateChoice("own:rag"));
  EXPECT_EQ(choice.name(), "own:rag");
  EXPECT_TRUE(choice.usable());
  EXPECT_EQ(choice.origins.chat, "by --chat-template");
  EXPECT_THAT(choice.origins.warnings,
              ElementsAre(Unusable("own", "--chat-template takes its place")));
}

TEST(ChooseChatTemplateTest, ABrokenOneThatAnOptionNamesIsInForceWithItsError) {
  // The default one is broken, too.
  const Choice both =
      Choose({{"default", kBroken}, {"rag", kBroken}}, {}, OwnTemplateChoice("own:rag"));
  EXPECT_EQ(both.name(), "own:rag");
  EXPECT_FALSE(both.usable());
  EXPECT_THAT(both.origins.warnings,
              ElementsAre(Unusable("own", "--chat-template cannot take its place"),
                          Unusable("own:rag", "chat requests are refused")));
  const Choice alone = Choose({{"rag", kBroken}}, {}, OwnTemplateChoice("own:rag"));
  EXPECT_EQ(alone.name(), "own:rag");
  EXPECT_FALSE(alone.usable());
  EXPECT_THAT(alone.origins.warnings, ElementsAre(HasSubstr("chat requests are refused")));
  // The model's option has precedence over a default one that can be used.
  const Choice set = Choose({{"default", "a"}, {"rag", kBroken}}, OwnTemplateChoice("own:rag"), {});
  EXPECT_EQ(set.name(), "own:rag");
  EXPECT_FALSE(set.usable());
}

TEST(ChooseChatTemplateTest, WithoutAnOptionABrokenDefaultOneIsInForceWithItsError) {
  for (const auto& otherwise : {std::optional<ChatTemplateText>(), OwnTemplateChoice("own:rag")}) {
    const Choice choice = Choose({{"default", kBroken}}, {}, otherwise);
    EXPECT_EQ(choice.name(), "own");
    EXPECT_FALSE(choice.usable());
    EXPECT_THAT(choice.origins.warnings, ElementsAre(HasSubstr("chat requests are refused")));
    EXPECT_EQ(choice.origins.chat, "the checkpoint's own");
  }
}

TEST(ChooseChatTemplateTest, WithoutAnyChatIsRefused) {
  EXPECT_EQ(Choose({}, {}, {}).chosen, nullptr);
  EXPECT_EQ(Choose({}, {}, OwnTemplateChoice("own:rag")).chosen, nullptr);
  EXPECT_EQ(Choose({{"rag", "a"}}, {}, {}).chosen, nullptr);
  EXPECT_THROW(Choose({{"default", "a"}}, OwnTemplateChoice("own:rag"), {}), LoadError);
}

}  // namespace
}  // namespace triptych::server::choose_chat_template_test
