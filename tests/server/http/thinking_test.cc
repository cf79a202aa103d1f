// Tests of thinking on request: the members of each API reach the chat template's variables.
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "tests/server/http/http_client.h"
#include "tests/server/test_server.h"

namespace triptych::server::thinking_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// The number of bytes of its prompt shows the variables.
constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.reasoning_content }}|{{ m.content }};{% endfor %}"
    "{{ reasoning_effort }}{{ '.' if thinking == enable_thinking }}"
    "{% if enable_thinking is not defined %}{% elif enable_thinking %}<think>"
    "{% else %}<think></think>{% endif %}";

int64_t Bytes(const std::string& prompt) { return std::ssize(prompt); }

const std::string kDefault = "|x;.";
const std::string kEnabled = "|x;.<think>";
const std::string kDisabled = "|x;.<think></think>";

class ThinkingTest : public testing::Test {
 protected:
  static TestServerOptions Options() {
    TestServerOptions options = WithHttp();
    options.models = {
        {.name = "thinks", .config = OneOfEachKind()[0].config, .own_chat_template = kTemplate},
        {.name = "none", .config = OneOfEachKind()[0].config},
        {.name = "plain",
         .config = OneOfEachKind()[0].config,
         .chat_template = *BuiltInTemplate("plain")}};
    return options;
  }
  // A request for four tokens, the likeliest.
  static json Ask(const std::string& path, const json& members) {
    const json messages = {{{"role", "user"}, {"content", "x"}}};
    json body = {{"model", "thinks"}};
    if (path.starts_with("/api/")) {
      body["stream"] = false;
      body["options"] = {{"num_predict", 4}, {"temperature", 0}};
    } else {
      body[path == "/v1/responses" ? "max_output_tokens" : "max_tokens"] = 4;
      body["temperature"] = 0;
    }
    if (path == "/v1/responses") {
      body["input"] = "x";
    } else if (path == "/api/generate") {
      body["prompt"] = "x";
    } else {
      body["messages"] = messages;
    }
    body.update(members);
    return body;
  }
  int64_t PromptTokens(const std::string& path, const json& members) {
    const HttpAnswer answer = client_.Post(path, Ask(path, members));
    EXPECT_EQ(answer.status, 200) << answer.body;
    const json reply = answer.json();
    if (reply.contains("prompt_eval_count")) return reply.at("prompt_eval_count");
    const json& usage = reply.at("usage");
    if (usage.contains("prompt_tokens")) return usage.at("prompt_tokens");
    return usage.at("input_tokens").get<int64_t>() +
           usage.value("cache_read_input_tokens", int64_t{0});
  }

  const TestServer server_{Options()};
  HttpClient client_{server_.http_address()};
};

TEST_F(ThinkingTest, ThatIsAskedForIsAVariableOfTheTemplate) {
  const struct {
    const char* path;
    json members;
    std::string prompt;
  } cases[] = {
      {"/api/chat", json::object(), kDefault},
      {"/api/chat", {{"think", true}}, kEnabled},
      {"/api/chat", {{"think", false}}, kDisabled},
      {"/api/chat", {{"think", "high"}}, "|x;high.<think>"},
      {"/api/generate", {{"think", true}}, kEnabled},
      {"/api/generate", {{"think", false}}, kDisabled},
      {"/v1/messages", json::object(), kDefault},
      {"/v1/messages", {{"thinking", {{"type", "adaptive"}}}}, kDefault},
      {"/v1/messages", {{"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}}}, kEnabled},
      {"/v1/messages", {{"thinking", {{"type", "disabled"}}}}, kDisabled},
      {"/v1/chat/completions", {{"reasoning_effort", "none"}}, kDisabled},
      {"/v1/chat/completions", {{"reasoning_effort", "low"}}, "|x;low.<think>"},
      {"/v1/chat/completions", {{"reasoning", {{"effort", "none"}}}}, kDisabled},
      {"/v1/responses", {{"reasoning", {{"effort", "none"}, {"summary", "auto"}}}}, kDisabled},
      {"/v1/responses", {{"reasoning", {{"effort", "minimal"}}}}, "|x;minimal.<think>"},
      {"/v1/responses", {{"reasoning", {{"effort", nullptr}}}}, kDefault},
      // Variables that the client sets itself have precedence.
      {"/v1/chat/completions",
       {{"reasoning_effort", "none"},
        {"chat_template_kwargs", {{"enable_thinking", true}, {"thinking", true}}}},
       kEnabled},
  };
  for (const auto& [path, members, prompt] : cases) {
    SCOPED_TRACE(std::string(path) + members.dump());
    EXPECT_EQ(PromptTokens(path, members), Bytes(prompt));
  }
}

TEST_F(ThinkingTest, ThoughtsAreWhereTheApiHasThem) {
  const json chat = client_.Post("/api/chat", Ask("/api/chat", {{"think", true}})).json();
  EXPECT_NE(chat.at("message").value("thinking", ""), "");
  EXPECT_EQ(chat.at("message").at("content"), "");
  const json text = client_.Post("/api/generate", Ask("/api/generate", {{"think", true}})).json();
  EXPECT_NE(text.value("thinking", ""), "");
  const json off = client_.Post("/api/chat", Ask("/api/chat", {{"think", false}})).json();
  EXPECT_FALSE(off.at("message").contains("thinking"));
  const json response =
      client_.Post("/v1/responses", Ask("/v1/responses", {{"reasoning", {{"effort", "low"}}}}))
          .json();
  EXPECT_EQ(response.at("output")[0].at("type"), "reasoning");
  EXPECT_EQ(response.at("reasoning").at("effort"), "low");
}

TEST_F(ThinkingTest, OfAModelThatCannotIsRefused) {
  for (const std::string path : {"/api/chat", "/api/generate"}) {
    for (const json& think : {json(true), json("low")}) {
      json body = Ask(path, {{"model", "plain:latest"}, {"think", think}});
      const HttpAnswer refused = client_.Post(path, body);
      EXPECT_EQ(refused.status, 400);
      EXPECT_EQ(refused.json(), json({{"error", "\"plain:latest\" does not support thinking"}}));
      // A request that only loads the model, too.
      body.erase("messages");
      body.erase("prompt");
      EXPECT_EQ(client_.Post(path, body).status, 400);
    }
    EXPECT_EQ(client_.Post(path, Ask(path, {{"model", "plain"}, {"think", false}})).status, 200);
    EXPECT_THAT(client_.Post(path, Ask(path, {{"model", "none"}, {"think", true}})).body,
                HasSubstr("does not support thinking"));
  }
  const struct {
    const char* path;
    json on, off;
    const char* field;
  } cases[] = {
      {"/v1/messages",
       {{"thinking", {{"type", "enabled"}}}},
       {{"thinking", {{"type", "disabled"}}}},
       "thinking.type"},
      {"/v1/chat/completions",
       {{"reasoning_effort", "low"}},
       {{"reasoning_effort", "none"}},
       "reasoning_effort"},
      {"/v1/responses",
       {{"reasoning", {{"effort", "low"}}}},
       {{"reasoning", {{"effort", "none"}}}},
       "reasoning.effort"},
  };
  for (const auto& [path, on, off, field] : cases) {
    SCOPED_TRACE(path);
    json body = Ask(path, {{"model", "plain"}});
    body.update(on);
    const HttpAnswer refused = client_.Post(path, body);
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(refused.error("param"), field);
    EXPECT_THAT(refused.message(), HasSubstr("the model plain does not support thinking"));
    body.update(off);
    EXPECT_EQ(client_.Post(path, body).status, 200);
  }
}

TEST_F(ThinkingTest, OtherValuesAreRefused) {
  const struct {
    const char* path;
    json members;
    const char* message;
  } cases[] = {
      {"/api/chat", {{"think", "much"}}, "think is \"much\"; allowed: true, false, \"low\""},
      {"/api/generate", {{"think", 1}}, "think is 1"},
      {"/api/generate", {{"think", true}, {"raw", true}}, "think is true, which is not supported"},
      {"/v1/messages", {{"thinking", true}}, "thinking is true; allowed: an object"},
      {"/v1/messages", {{"thinking", {{"type", "on"}}}}, "thinking.type is \"on\""},
      {"/v1/messages", {{"thinking", json::object()}}, "thinking.type is missing"},
      {"/v1/messages",
       {{"thinking", {{"type", "enabled"}, {"budget_tokens", 0}}}},
       "thinking.budget_tokens is 0"},
      {"/v1/messages", {{"thinking", {{"type", "disabled"}, {"x", 1}}}}, "thinking.x is not a"},
      {"/v1/messages", {{"output_config", {{"effort", 1}}}}, "output_config.effort is 1"},
      {"/v1/chat/completions", {{"reasoning_effort", "much"}}, "reasoning_effort is \"much\""},
      {"/v1/chat/completions", {{"reasoning", "low"}}, "reasoning is \"low\"; allowed: an object"},
      {"/v1/chat/completions", {{"reasoning", {{"max_tokens", 9}}}}, "reasoning.max_tokens is not"},
      {"/v1/responses", {{"reasoning", {{"effort", 1}}}}, "reasoning.effort is 1"},
      {"/v1/responses", {{"reasoning", {{"summary", "detailed"}}}}, "reasoning.summary is"},
  };
  for (const auto& [path, members, message] : cases) {
    SCOPED_TRACE(std::string(path) + members.dump());
    const HttpAnswer answer = client_.Post(path, Ask(path, members));
    EXPECT_EQ(answer.status, 400);
    const std::string quoted = json(message).dump();
    EXPECT_THAT(answer.body, HasSubstr(quoted.substr(1, quoted.size() - 2)));
  }
}

TEST_F(ThinkingTest, IsACapabilityInOllamasApi) {
  const auto capabilities = [&](const char* model) {
    return client_.Post("/api/show", {{"model", model}}).json().at("capabilities");
  };
  EXPECT_EQ(capabilities("thinks"), json({"completion", "thinking"}));
  EXPECT_EQ(capabilities("plain"), json({"completion"}));
  EXPECT_EQ(capabilities("none"), json({"completion"}));
}

TEST_F(ThinkingTest, ThoughtsOfTheHistoryReachTheTemplate) {
  const json x = {{"role", "user"}, {"content", "x"}};
  const json y = {{"role", "assistant"}, {"content", "y"}};
  const json z = {{"role", "user"}, {"content", "z"}};
  const auto item = [](const json& content, const json& summary) -> json {
    return {{"type", "reasoning"}, {"content", content}, {"summary", summary}};
  };
  const auto part = [](const char* type, const char* text) -> json {
    return {{{"type", type}, {"text", text}}};
  };
  const json four = item(part("reasoning_text", "four"), json::array());
  const json summary = item(nullptr, part("summary_text", "sum"));
  const struct {
    json input;
    std::string prompt;
  } responses[] = {
      {{x, four, y, z}, "|x;four|y;|z;."},
      {{x, four, z}, "|x;four|;|z;."},
      {{x, item("text", json::array()), y, z}, "|x;text|y;|z;."},
      {{x, item(part("text", "part"), nullptr), y, z}, "|x;part|y;|z;."},
      {{x, summary, y, z}, "|x;sum|y;|z;."},
      {{x, item(part("reasoning_text", "four"), part("summary_text", "sum")), y, z},
       "|x;four|y;|z;."},
      {{x, four, summary, y, z}, "|x;four\nsum|y;|z;."},
      {{x, item(nullptr, json::array()), y, z}, "|x;|y;|z;."},
      {{x, four, {{"role", "assistant"}, {"content", "y"}, {"reasoning", "own"}}, z},
       "|x;four\nown|y;|z;."},
  };
  for (const auto& [input, prompt] : responses) {
    SCOPED_TRACE(input.dump());
    EXPECT_EQ(PromptTokens("/v1/responses", {{"input", input}}), Bytes(prompt));
  }
  const json block = {{"type", "thinking"}, {"thinking", "four"}, {"signature", ""}};
  EXPECT_EQ(PromptTokens(
                "/v1/messages",
                {{"messages",
                  {x,
                   {{"role", "assistant"}, {"content", {block, {{"type", "text"}, {"text", "y"}}}}},
                   z}}}),
            Bytes("|x;four|y;|z;."));
}

TEST_F(ThinkingTest, AMessageThatEndsInThoughtsCannotBeContinued) {
  const json x = {{"role", "user"}, {"content", "x"}};
  const json thoughts = {{"role", "assistant"},
                         {"content", {{{"type", "thinking"}, {"thinking", "four"}}}}};
  const HttpAnswer refused =
      client_.Post("/v1/messages", Ask("/v1/messages", {{"messages", {x, thoughts}}}));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.error("param"), "messages");
  EXPECT_THAT(refused.message(), HasSubstr("end with thoughts of the assistant"));
  // A last message without anything is the beginning of the reply.
  const json nothing = {{"role", "assistant"}, {"content", ""}};
  EXPECT_EQ(PromptTokens("/v1/messages", {{"messages", {x, nothing}}}), Bytes("|x;."));
}

}  // namespace
}  // namespace triptych::server::thinking_test
