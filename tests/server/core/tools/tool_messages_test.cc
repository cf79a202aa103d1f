// Tests of conversations with calls for templates that lack them, of what templates show, and of
// the grammar of calls.
#include "server/core/tools/tool_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/compile.h"
#include "engine/grammar/error.h"
#include "engine/grammar/matcher.h"
#include "server/core/tools/call_grammar.h"
#include "server/core/tools/call_parser.h"
#include "tests/support/tokenizer.h"

namespace triptych::server::tool_messages_test {
namespace {

using testing::HasSubstr;
using Kind = CallFormat::Kind;

const std::vector<Tool> kTools = {
    {.name = "f", .description = "Does.", .parameters = {{"type", "object"}}}, {.name = "g"}};

// A question, two calls, their results, and another question.
std::vector<ChatMessage> Conversation() {
  std::vector<ChatMessage> messages(5);
  messages[0].content = "Q";
  messages[1].role = ChatRole::kAssistant;
  messages[1].content = "Let me see.";
  messages[1].tool_calls = {{.id = "1", .name = "f", .arguments = R"({"b": 1, "a": "é"})"},
                            {.id = "2", .name = "g", .arguments = "{}"}};
  for (const int i : {2, 3}) {
    messages[i].role = ChatRole::kTool;
    messages[i].content = i == 2 ? "one" : "two";
    messages[i].tool_call_id = std::to_string(i - 1);
    messages[i].name = i == 2 ? "f" : "";
  }
  messages[4].content = "R";
  return messages;
}

// The prompt of a conversation with tools.
std::string Rendered(const std::string& text) {
  const ChatTemplate form({"own", text}, *TestTokenizer(), {});
  EXPECT_EQ(form.error(), "");
  ChatOptions options;
  if (form.tools().shows_tools) options.tools = ToolsJson(kTools);
  const auto prompt = form.Render(ForTemplate(Conversation(), kTools, form.tools()), options);
  return prompt.ok() ? prompt.value().bytes() : prompt.error().Message();
}

TEST(ToolMessagesTest, ATemplateGetsToolsAndCallsAsTransformersPassesThem) {
  EXPECT_EQ(Rendered("{{ tools | tojson }}\n{% for m in messages %}{{ m | tojson }}\n{% endfor %}"),
            R"([{"type": "function", "function": {"name": "f", "description": "Does.", )"
            R"("parameters": {"type": "object"}}}, )"
            R"({"type": "function", "function": {"name": "g", )"
            R"("parameters": {"type": "object", "properties": {}}}}])"
            "\n"
            R"({"role": "user", "content": "Q"})"
            "\n"
            R"({"role": "assistant", "content": "Let me see.", "tool_calls": [)"
            R"({"id": "1", "type": "function", "function": )"
            R"({"name": "f", "arguments": {"b": 1, "a": "é"}}}, )"
            R"({"id": "2", "type": "function", "function": {"name": "g", "arguments": {}}}]})"
            "\n"
            R"({"role": "tool", "content": "one", "tool_call_id": "1", "name": "f"})"
            "\n"
            R"({"role": "tool", "content": "two", "tool_call_id": "2"})"
            "\n"
            R"({"role": "user", "content": "R"})"
            "\n");
}

TEST(ToolMessagesTest, ATemplateThatConcatenatesArgumentsGetsText) {
  EXPECT_EQ(Rendered("{% for t in tools %}{{ t.function.name }}{% endfor %}"
                     "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
                     "{{ '(' + c.function.arguments + ')' }}{% endfor %};{% endfor %}"),
            R"(fgQ;Let me see.({"b": 1, "a": "é"})({});one;two;R;)");
}

// DeepSeek's do.
TEST(ToolMessagesTest, ATemplateThatShowsCallsInPlaceOfContentGetsBoth) {
  EXPECT_EQ(Rendered("{% for t in tools %}{{ t.function.name }}{% endfor %}"
                     "{% for m in messages %}{% if m.content is none %}"
                     "{% for c in m.tool_calls %}{{ '(' + c.function.arguments + ')' }}"
                     "{% endfor %}{% else %}{{ m.role }}:{{ m.content }}{% endif %};{% endfor %}"),
            R"(fguser:Q;assistant:Let me see.;({"b": 1, "a": "é"})({});tool:one;tool:two;user:R;)");
}

TEST(ToolMessagesTest, ATemplateWithoutToolsGetsText) {
  const std::string plain = "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}";
  const std::string calls =
      "assistant:Let me see.\n"
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": \"é\"}}\n</tool_call>\n"
      "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>\n";
  const std::string description =
      "You may call these functions:\n"
      "{\"name\":\"f\",\"description\":\"Does.\",\"parameters\":{\"type\":\"object\"}}\n"
      "{\"name\":\"g\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}\n"
      "To call one, reply with:\n"
      "<tool_call>\n{\"name\": \"NAME\", \"arguments\": {\"KEY\": VALUE}}\n</tool_call>";
  EXPECT_EQ(Rendered(plain),
            "system:" + description + "\nuser:Q\n" + calls + "tool:one\ntool:two\nuser:R\n");
  // Without system messages and results, too.
  EXPECT_EQ(Rendered("{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}"
                     "{{ raise_exception('no') }}{% endif %}{{ m.role }}:{{ m.content }}\n"
                     "{% endfor %}"),
            "user:" + description + "\n\nQ\n" + calls +
                "user:<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n"
                "</tool_response>\nR\n")
      << "one message of the user, as templates that alternate require";
}

TEST(ToolMessagesTest, ATemplateOfOneCallGetsThemOneByOne) {
  const std::string text =
      "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}"
      "{% if m.tool_calls and m.tool_calls | length != 1 %}{{ raise_exception('one call') }}"
      "{% endif %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}"
      "{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %};{% endfor %}";
  EXPECT_EQ(Rendered(text),
            "fguser:Q;assistant:Let me see.f{\"b\": 1, \"a\": \"é\"};tool:one;"
            "assistant:g{};tool:two;user:R;");
  const ToolSupport support = ChatTemplate({"own", text}, *TestTokenizer(), {}).tools();
  EXPECT_TRUE(support.one_call);
  std::vector<ChatMessage> messages = Conversation();
  std::swap(messages[2], messages[3]);
  const std::vector<ChatMessage> shown = ForTemplate(std::move(messages), kTools, support);
  ASSERT_EQ(shown.size(), 6U);
  EXPECT_EQ(shown[2].content, "one") << "by the id of its call";
  EXPECT_EQ(shown[4].content, "two");
}

TEST(ToolMessagesTest, TheFormatIsThatOfTheTemplatesText) {
  const auto kind = [](const std::string& text) { return FormatOf(text).value().kind; };
  EXPECT_EQ(kind("<tool_call>\n{\"name\": <function-name>"), Kind::kTagged);
  EXPECT_EQ(kind("[TOOL_CALLS] ["), Kind::kList);
  EXPECT_EQ(FormatOf("... <|tool_call|> ...").value().marker, "<|tool_call|>");
  EXPECT_EQ(FormatOf("... <|tool_call|> ...").value().end, "");
  EXPECT_EQ(FormatOf("'<|tool|>' + tools + '<|/tool|>'").value(),
            (CallFormat{Kind::kList, "<|tool_call|>", "<|/tool_call|>"}));
  EXPECT_EQ(FormatOf("<TOOLCALL>[{{ calls }}]</TOOLCALL>").value(),
            (CallFormat{Kind::kList, "<TOOLCALL>", "</TOOLCALL>"}));
  EXPECT_EQ(kind("<|START_ACTION|>[{\"tool_name\": x, \"parameters\": y}]"), Kind::kCommand);
  EXPECT_EQ(kind("<tool_call>{{ name }}<arg_key>"), Kind::kTagged);
  EXPECT_EQ(kind("[TOOL_CALLS]' + name + '[ARGS]"), Kind::kNamed);
  EXPECT_EQ(kind("<｜tool▁calls▁begin｜> ... ```json"), Kind::kDeepSeekV3);
  EXPECT_EQ(kind("<｜tool▁calls▁begin｜>"), Kind::kDeepSeek);
  EXPECT_EQ(kind("Respond in the format {\"name\": x, \"parameters\": y}"), Kind::kLlama);
  EXPECT_EQ(kind("<|python_start|>"), Kind::kLlama);
  EXPECT_FALSE(FormatOf("{{ messages }}").has_value());
  const auto without_marks = [](const std::string& text) {
    return ChatTemplate({"own", text}, *TestTokenizer(), {}).tools().format.kind;
  };
  EXPECT_EQ(without_marks("{% for m in messages %}{{ m | tojson }}{% endfor %}"), Kind::kLlama);
  EXPECT_EQ(without_marks("{% for m in messages %}{{ m.content }}{% endfor %}"), Kind::kTagged);
}

// A format's text of calls is one that its parser reads.
TEST(ToolMessagesTest, WrittenCallsAreRead) {
  for (const CallFormat& format :
       {CallFormat{}, CallFormat{.kind = Kind::kList, .marker = "functools"},
        CallFormat{.kind = Kind::kList, .marker = "<TOOLCALL>", .end = "</TOOLCALL>"},
        CallFormat{.kind = Kind::kCommand}, CallFormat{.kind = Kind::kNamed},
        CallFormat{.kind = Kind::kDeepSeekV3}, CallFormat{.kind = Kind::kDeepSeek},
        CallFormat{.kind = Kind::kLlama}}) {
    ReplyTools tools;
    tools.format = format;
    tools.names = {"f", "g"};
    CallParser parser(std::make_shared<const ReplyTools>(tools));
    ReplyPieces pieces;
    parser.Push(CallsText(format, Conversation()[1].tool_calls), /*last=*/true, pieces);
    ASSERT_EQ(pieces.size(), 4U) << static_cast<int>(format.kind);
    EXPECT_EQ(pieces[0].text + pieces[1].text, "f{\"b\": 1, \"a\": \"é\"}");
    EXPECT_EQ(pieces[2].text + pieces[3].text, "g{}");
  }
}

grammar::Matcher MatcherOf(const CallForm& form) {
  grammar::Expressions expressions;
  const grammar::Expression start = ParseCallForm(expressions, form, std::nullopt);
  return grammar::Matcher(
      std::make_shared<const grammar::Grammar>(grammar::Compile(expressions, start)));
}

CallForm Form(Kind kind, bool may_answer) {
  CallForm form;
  form.format.kind = kind;
  form.may_answer = may_answer;
  form.functions = {{.name = "f",
                     .schema = R"({"type": "object", "properties": {"a": {"enum": [1]}},
                     "required": ["a"], "additionalProperties": false})",
                     .field = "tools[0].x"},
                    {.name = "g", .schema = "", .field = "tools[1].x"}};
  return form;
}

bool Fits(const CallForm& form, const std::string& text) {
  grammar::Matcher matcher = MatcherOf(form);
  return matcher.Advance(text) && matcher.MayEnd();
}

TEST(CallGrammarTest, RequiredCallsFitTheirSchemas) {
  for (const Kind kind : {Kind::kTagged, Kind::kNamed, Kind::kDeepSeekV3, Kind::kDeepSeek,
                          Kind::kLlama, Kind::kCommand}) {
    CallForm form = Form(kind, /*may_answer=*/false);
    const auto text = [&](const std::vector<ToolCall>& calls) {
      return CallsText(form.format, calls);
    };
    const ToolCall f = {.id = "", .name = "f", .arguments = R"({"a":1})"};
    const ToolCall g = {.id = "", .name = "g", .arguments = R"({"x": [2]})"};
    EXPECT_TRUE(Fits(form, text({f}))) << static_cast<int>(kind);
    EXPECT_TRUE(Fits(form, text({g})));
    EXPECT_FALSE(Fits(form, text({f, g}))) << "not parallel";
    EXPECT_FALSE(Fits(form, text({{.id = "", .name = "f", .arguments = R"({"a":2})"}})));
    EXPECT_FALSE(Fits(form, text({{.id = "", .name = "h", .arguments = "{}"}})));
    EXPECT_FALSE(Fits(form, ""));
    EXPECT_FALSE(Fits(form, "text " + text({f})));
    form.parallel = true;
    EXPECT_TRUE(Fits(form, text({f, g, f})));
  }
}

TEST(CallGrammarTest, AnAnswerIsAnyTextWithoutTheMarker) {
  const CallForm form = Form(Kind::kTagged, /*may_answer=*/true);
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":1}}\n</tool_call>";
  for (const std::string& text :
       {std::string(), std::string("Hi <b>é</b>\n\n"), std::string("<<tool_cal<tool_call"), call,
        "Let me see.\n<" + call}) {
    EXPECT_TRUE(Fits(form, text)) << text;
  }
  EXPECT_FALSE(Fits(form, "<tool_call>"));
  EXPECT_FALSE(Fits(form, call + "x"));
  const CallForm llama = Form(Kind::kLlama, /*may_answer=*/true);
  EXPECT_TRUE(Fits(llama, R"(It is {"a": 1})"));
  EXPECT_TRUE(Fits(llama, R"({"name": "f", "parameters": {"a":1}})"));
  EXPECT_FALSE(Fits(llama, R"({"a": 1})"));
}

// An answer may be long: nothing grows with it.
TEST(CallGrammarTest, ALongAnswerFits) {
  grammar::Matcher matcher = MatcherOf(Form(Kind::kTagged, /*may_answer=*/true));
  for (int i = 0; i < 100'000; ++i) ASSERT_TRUE(matcher.Advance(i % 3 == 0 ? "<" : "t"));
  EXPECT_TRUE(matcher.Advance("<tool_call>\n{"));
}

TEST(CallGrammarTest, ThoughtsComeBeforeCalls) {
  CallForm form = Form(Kind::kTagged, /*may_answer=*/false);
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":1}}\n</tool_call>";
  form.thoughts = ReasoningSplitter::Begin::kThoughts;
  EXPECT_TRUE(Fits(form, "hm <tool_call> </thin</think>\n\n" + call));
  EXPECT_FALSE(Fits(form, call));
  form.thoughts = ReasoningSplitter::Begin::kUnknown;
  EXPECT_TRUE(Fits(form, "<think>\nhm\n</think>\n" + call));
  EXPECT_TRUE(Fits(form, call));
  EXPECT_FALSE(Fits(form, "hm" + call));
}

TEST(CallGrammarTest, ASchemaThatCannotBeKeptIsNamed) {
  CallForm form = Form(Kind::kTagged, /*may_answer=*/false);
  form.functions[0].schema = R"({"properties": {"a": {"not": {}}}})";
  try {
    MatcherOf(form);
    FAIL() << "no error";
  } catch (const grammar::GrammarError& error) {
    EXPECT_EQ(error.path(), "tools[0].x.properties.a.not");
    EXPECT_THAT(error.what(), HasSubstr("is not supported"));
  }
}

}  // namespace
}  // namespace triptych::server::tool_messages_test
