// Requests for output of a form: JSON Schemas, regular expressions, choices and grammars.
#include "server/http/output_form.h"

#include <string>
#include <utility>
#include <vector>

#include "server/core/chat/built_in_templates.h"
#include "tests/server/http/http_client.h"
#include "tests/server/test_server.h"

namespace triptych::server::output_form_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kCompletions = "/v1/completions";

// A text, since schemas keep the order of their members.
const std::string kSchema =
    R"({"type": "object", "properties": {"z": {"enum": ["p", "q"]}, "a": {"type": "null"}},
        "required": ["z", "a"], "additionalProperties": false})";

// Forms end every text, at the latest after some 400 bytes of whitespace and values.
TestServerOptions Chatting() {
  TestServerOptions options = WithHttp(OneEndlessModel());
  options.chat_template = BuiltInTemplate("plain");
  return options;
}

class OutputFormTest : public testing::Test {
 protected:
  OutputFormTest() : server_(Chatting()), client_(server_.http_address()) {}

  HttpAnswer Send(const std::string& path, const std::string& members) {
    std::string prompt = R"("messages": [{"role": "user", "content": "a"}], "stream": false)";
    if (path == kCompletions) prompt = R"("prompt": "a", "max_tokens": 500)";
    if (path == "/api/generate") prompt = R"("prompt": "a", "stream": false)";
    if (path == "/v1/responses") prompt = R"("input": "a")";
    client_.Send("POST", path, R"({"model": "endless", )" + prompt + ", " + members + "}");
    return client_.Read();
  }

  // The text of a completion or chat that ended by itself.
  std::string TextOf(const std::string& path, const std::string& members) {
    const HttpAnswer answer = Send(path, members);
    EXPECT_EQ(answer.status, 200) << answer.body;
    if (answer.status != 200) return "";
    const json choice = answer.json().at("choices")[0];
    EXPECT_EQ(choice.at("finish_reason"), "stop") << members;
    return path == kChat ? choice.at("message").at("content") : choice.at("text");
  }

  TestServer server_;
  HttpClient client_;
};

void ExpectFits(const std::string& text) {
  const auto value = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(value.is_object()) << text;
  EXPECT_EQ(value.size(), 2);
  EXPECT_EQ(value.begin().key(), "z") << "the order of the schema";
  EXPECT_TRUE(value["z"] == "p" || value["z"] == "q") << text;
  EXPECT_EQ(value["a"], nullptr);
}

TEST_F(OutputFormTest, SchemasInEveryApisForm) {
  const std::string named = R"({"name": "n", "strict": true, "schema": )" + kSchema + "}";
  for (const char* const path : {kChat, kCompletions}) {
    for (const std::string& members :
         {R"("response_format": {"type": "json_schema", "json_schema": )" + named + "}",
          R"("response_format": {"type": "json_object", "schema": )" + kSchema + "}",
          R"("structured_outputs": {"json": )" + kSchema + "}",
          R"("structured_outputs": {"json": )" + json(kSchema).dump() + "}",
          R"("guided_json": )" + kSchema, R"("json_schema": )" + kSchema}) {
      SCOPED_TRACE(members);
      ExpectFits(TextOf(path, members));
    }
  }
  const HttpAnswer response = Send(
      "/v1/responses",
      R"("text": {"format": {"type": "json_schema", "name": "n", "schema": )" + kSchema + "}}");
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_THAT(response.body, HasSubstr(R"({"format":{"type":"json_schema","name":"n","schema":)" +
                                       nlohmann::ordered_json::parse(kSchema).dump()))
      << "as asked, in its order";
  ExpectFits(response.json().at("output")[0].at("content")[0].at("text"));
  ExpectFits(Send("/api/chat", R"("format": )" + kSchema).json().at("message").at("content"));
  ExpectFits(Send("/api/generate", R"("format": )" + kSchema).json().at("response"));
}

TEST_F(OutputFormTest, OtherForms) {
  const std::string number = "[0-9][0-9]";
  for (const std::string& members :
       {std::string(R"("structured_outputs": {"regex": "\\d{2}"})"),
        std::string(R"("guided_regex": "[0-9]{2}")"),
        std::string(R"("structured_outputs": {"choice": ["12", "34"]})"),
        std::string(R"("guided_choice": ["12"])"),
        std::string(R"("grammar": "root ::= d d\nd ::= [0-9]\n")"),
        std::string(R"("structured_outputs": {"grammar": "root ::= [0-9]{2}"})"),
        std::string(R"("guided_grammar": "root ::= [0-9]{2}")")}) {
    EXPECT_THAT(TextOf(kChat, members), testing::MatchesRegex(number)) << members;
  }
}

TEST_F(OutputFormTest, ObjectsOfAnyMembers) {
  for (const char* const members :
       {R"("response_format": {"type": "json_object"})",
        R"("structured_outputs": {"json_object": true})", R"("guided_json_object": true)"}) {
    // Short: the end token comes as soon as it may, and no member begins.
    const std::string text =
        TextOf(kChat, std::string(members) + R"(, "temperature": 0, "logit_bias": {"125": 100})");
    EXPECT_EQ(text, "{}") << members;
  }
  EXPECT_EQ(Send(kChat, R"("response_format": {"type": "text"}, "max_tokens": 3)").status, 200);
}

TEST_F(OutputFormTest, AStreamAndChoicesHaveTheForm) {
  const std::string members = R"("n": 3, "response_format": {"type": "json_schema", "json_schema":
      {"name": "n", "schema": )" +
                              kSchema + "}}";
  for (const json& choice : Send(kChat, members).json().at("choices")) {
    ExpectFits(choice.at("message").at("content"));
  }
  client_.Send("POST", kCompletions,
               R"({"model": "endless", "prompt": "a", "max_tokens": 500,
      "stream": true, "guided_json": )" +
                   kSchema + "}");
  HttpClient::Events events(client_);
  std::string text;
  for (const json& event : events.All()) {
    text += event.at("choices")[0].at("text").get<std::string>();
  }
  ExpectFits(text);
}

TEST_F(OutputFormTest, RefusalsNameTheField) {
  struct Case {
    std::string members, param, message;
  };
  const std::vector<Case> cases = {
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema":
           {"properties": {"a": {"not": {}}}}}})",
       "response_format.json_schema.schema.properties.a.not", "is not supported"},
      {R"("response_format": {"type": "json_schema"})", "response_format.json_schema",
       "is missing"},
      {R"("response_format": {"type": "xml"})", "response_format.type",
       "is \"xml\"; allowed: text"},
      {R"("response_format": {"type": "text", "x": 1})", "response_format.x", "not a known field"},
      {R"("response_format": "json")", "response_format", "allowed: an object"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": 3, "schema": {}}})",
       "response_format.json_schema.name", "is 3; allowed: "},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}})",
       "response_format.json_schema.name", "allowed: 1 to 64 letters, digits, _ and -"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"strict": "yes",
           "schema": {}}})",
       "response_format.json_schema.strict", "is \"yes\"; allowed: "},
      {R"("structured_outputs": {"regex": "a", "disable_any_whitespace": true})",
       "structured_outputs.disable_any_whitespace", "is true"},
      {R"("structured_outputs": {"regex": "a", "disable_fallback": "x"})",
       "structured_outputs.disable_fallback", "is \"x\"; allowed: "},
      {R"("structured_outputs": {"regex": "(a"})", "structured_outputs.regex", "does not end"},
      {R"("structured_outputs": {"choice": []})", "structured_outputs.choice", "has 0 choices"},
      {R"("structured_outputs": {"choice": [1]})", "structured_outputs.choice[0]", "a string"},
      {R"("grammar": "root ::= x")", "grammar", "which it does not define"},
      {R"("grammar": "root ::= root \"a\" | \"b\"")", "grammar", "begins with itself"},
      {R"("guided_json": 3)", "guided_json", "allowed: a JSON Schema"},
      {R"("guided_json": "{")", "guided_json", "not valid JSON"},
      {R"("grammar": "root ::= [a]", "guided_regex": "a")", "grammar", "but guided_regex is, too"},
      {R"("guided_regex": "(a|a)*(a|a)*x{3}b{999999999}")", "guided_regex", "at most 1000000"}};
  for (const auto& [members, param, message] : cases) {
    const HttpAnswer answer = Send(kChat, members);
    ASSERT_EQ(answer.status, 400) << members.substr(0, 200) << answer.body;
    EXPECT_EQ(answer.error("param"), param);
    EXPECT_THAT(answer.message(), HasSubstr(message));
  }
  const std::string named = "a" + std::string(64, 'b');
  const HttpAnswer response = Send(
      "/v1/responses",
      R"("text": {"format": {"type": "json_schema", "schema": {}, "name": ")" + named + "\"}}");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.error("param"), "text.format.name");
  EXPECT_EQ(Send("/v1/responses", R"("text": {"format": {"type": "json_schema", "schema": {},
                 "strict": 1}})")
                .error("param"),
            "text.format.strict");
}

TEST_F(OutputFormTest, DefaultsOfVllmChangeNothing) {
  EXPECT_EQ(TextOf(kChat, R"("structured_outputs": {"choice": ["12"], "json": null,
      "disable_fallback": false, "disable_any_whitespace": false,
      "disable_additional_properties": false, "whitespace_pattern": null,
      "structural_tag": null})"),
            "12");
}

}  // namespace
}  // namespace triptych::server::output_form_test
