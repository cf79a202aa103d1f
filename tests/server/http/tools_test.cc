// Tests of functions that a reply calls: requests, calls by schemas, streams, and conversations
// that go on.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/byte_tokenizer.h"
#include "server/http/chat_completions.h"
#include "server/http/messages.h"
#include "server/http/ollama_answer.h"
#include "server/http/responses.h"
#include "tests/server/http/http_client.h"
#include "tests/server/test_server.h"
#include "tests/support/tokenizer_files.h"

namespace triptych::server::tools_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kChat = "/v1/chat/completions";

// Shows everything that it gets; the text before it names the format of calls.
constexpr const char* kTemplate =
    "{% for t in tools or [] %}{{ t.function | tojson }}|{% endfor %}"
    "{% for m in messages %}{{ m.role }}:{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{{ m.tool_call_id }}{{ "
    "m.name }};"
    "{% endfor %}";

const std::map<std::string, std::string> kFormats = {
    {"tagged", "{# <tool_call> #}"},
    {"list", "{# [TOOL_CALLS] #}"},
    {"named", "{# [TOOL_CALLS] [ARGS] #}"},
    {"deepseek3", "{# <｜tool▁calls▁begin｜> ```json #}"},
    {"deepseek", "{# <｜tool▁calls▁begin｜> #}"},
    {"llama", "{# <|python_tag|> #}"}};

TestServerOptions EveryFormat() {
  TestServerOptions options = WithHttp();
  options.models.clear();
  for (const auto& [name, mark] : kFormats) {
    TestModel model = EndlessModel();
    model.name = name;
    model.kv_cache_bytes = 1 << 20;
    model.own_chat_template = mark + kTemplate;
    options.models.push_back(model);
  }
  // Bytes are tokens, and so are the markers, which are special.
  TestModel special = options.models.back();
  special.name = "special";
  special.own_chat_template = kFormats.at("named") + kTemplate;
  Json tokenizer = BeginAndEndJson();
  for (const auto& [token, text] : {std::pair(258, "[TOOL_CALLS]"), std::pair(259, "[ARGS]")}) {
    tokenizer["added_tokens"].push_back({{"id", token}, {"content", text}, {"special", true}});
  }
  special.tokenizer_json = tokenizer.dump();
  special.config.vocab_size = 260;
  options.models.push_back(special);
  TestModel plain = EndlessModel();
  plain.name = "plain";
  plain.kv_cache_bytes = 1 << 20;
  plain.chat_template = BuiltInTemplate("plain");
  options.models.push_back(plain);
  TestModel single = options.models.front();
  single.name = "single";
  single.own_chat_template =
      "{% for m in messages %}{% if m.tool_calls and m.tool_calls | length != 1 %}"
      "{{ raise_exception('one') }}{% endif %}{{ m | tojson }}{% endfor %}";
  options.models.push_back(single);
  return options;
}

// Members keep their order, as a schema's properties do.
const std::string kTools =
    R"([{"type": "function", "function": {"name": "pick", "description": "Picks.", "strict": true, "parameters":
         {"type": "object", "properties": {"z": {"enum": ["p", "q"]}, "a": {"type": "null"}},
          "required": ["z", "a"], "additionalProperties": false}}},
        {"type": "function", "function": {"name": "now", "strict": true}}])";

void ExpectFits(const json& function) {
  const std::string text = function.at("arguments");
  const auto arguments = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(arguments.is_object()) << text;
  if (function.at("name") == "now") {
    EXPECT_EQ(arguments.size(), 0U) << text;
    return;
  }
  EXPECT_EQ(function.at("name"), "pick");
  ASSERT_EQ(arguments.size(), 2U) << text;
  EXPECT_EQ(arguments.begin().key(), "z") << "the order of the schema";
  EXPECT_TRUE(arguments.at("z") == "p" || arguments.at("z") == "q") << text;
  EXPECT_EQ(arguments.at("a"), nullptr);
}

class ToolsTest : public testing::Test {
 protected:
  HttpAnswer Send(const std::string& model, const std::string& members,
                  const std::string& path = kChat) {
    client_.Send("POST", path,
                 R"({"model": ")" + model +
                     R"(", "messages": [{"role": "user", "content": "Hi"}], "seed": 7, "tools": )" +
                     kTools + (members.empty() ? "" : ", ") + members + "}");
    return client_.Read();
  }
  json Choice(const std::string& model, const std::string& members) {
    const HttpAnswer answer = Send(model, members);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.status == 200 ? answer.json().at("choices")[0] : json();
  }
  // The prompt of a chat.
  std::string Prompt(const std::string& model, const std::string& members) {
    client_.Send("POST", "/tokenize", R"({"model": ")" + model + R"(", )" + members + "}");
    const HttpAnswer answer = client_.Read();
    EXPECT_EQ(answer.status, 200) << answer.body;
    std::string text;
    const json reply = answer.json();
    for (const int token : reply.at("tokens")) {
      if (token < 256) text += static_cast<char>(token);
    }
    return text;
  }

  const TestServer server_{EveryFormat()};
  HttpClient client_{server_.http_address()};
};

TEST_F(ToolsTest, RequiredCallsFitTheirSchemasInEveryFormat) {
  std::vector<std::string> models = {"plain"};
  for (const auto& [name, mark] : kFormats) models.push_back(name);
  for (const std::string& model : models) {
    SCOPED_TRACE(model);
    const json choice = Choice(model, R"("tool_choice": "required")");
    EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
    const json& message = choice.at("message");
    EXPECT_EQ(message.at("content"), nullptr);
    ASSERT_GE(message.at("tool_calls").size(), 1U);
    for (const json& call : message.at("tool_calls")) {
      EXPECT_EQ(call.at("type"), "function");
      EXPECT_THAT(call.at("id").get<std::string>(), testing::MatchesRegex("[0-9a-zA-Z]{9}"));
      ExpectFits(call.at("function"));
    }
    const json one =
        Choice(model, R"("tool_choice": {"type": "function", "function": {"name": "now"}})");
    ASSERT_EQ(one.at("message").at("tool_calls").size(), 1U);
    EXPECT_EQ(one.at("message").at("tool_calls")[0].at("function").at("name"), "now");
    ExpectFits(one.at("message").at("tool_calls")[0].at("function"));
    EXPECT_EQ(Choice(model, R"("tool_choice": "required", "parallel_tool_calls": false)")
                  .at("message")
                  .at("tool_calls")
                  .size(),
              1U);
  }
}

TEST_F(ToolsTest, OnlyAllowedToolsAreCalled) {
  const auto allowed = [](const std::string& mode) {
    return R"("tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": ")" + mode +
           R"(", "tools": [{"type": "function", "function": {"name": "now"}}]}})";
  };
  std::vector<std::string> models = {"plain"};
  for (const auto& [name, mark] : kFormats) models.push_back(name);
  for (const std::string& model : models) {
    SCOPED_TRACE(model);
    const json required = Choice(model, allowed("required")).at("message");
    ASSERT_GE(required.at("tool_calls").size(), 1U);
    for (const json& call : required.at("tool_calls")) {
      EXPECT_EQ(call.at("function").at("name"), "now");
    }
    const json either = Choice(model, allowed("auto") + R"(, "max_tokens": 60)").at("message");
    for (const json& call : either.value("tool_calls", json::array())) {
      EXPECT_EQ(call.at("function").at("name"), "now");
    }
  }
  EXPECT_EQ(Prompt("tagged", std::string(R"("messages": [{"role": "user", "content": "Hi"}], )") +
                                 allowed("auto") + R"(, "tools": )" + kTools),
            Prompt("tagged", std::string(R"("messages": [{"role": "user", "content": "Hi"}], )") +
                                 R"("tools": )" + kTools))
      << "the template gets all tools";
}

TEST_F(ToolsTest, ResponsesAllowToolsInAFlatObject) {
  const std::string tools =
      R"([{"type": "function", "name": "f"}, {"type": "function", "name": "g"}])";
  const json choice = {{"type", "allowed_tools"},
                       {"mode", "required"},
                       {"tools", json::array({json{{"type", "function"}, {"name", "g"}}})}};
  client_.Send("POST", "/v1/responses",
               R"({"model": "tagged", "input": "Hi", "seed": 3, "tools": )" + tools +
                   R"(, "tool_choice": )" + choice.dump() + "}");
  const HttpAnswer answer = client_.Read();
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json().at("tool_choice"), choice);
  ASSERT_GE(answer.json().at("output").size(), 1U);
  for (const json& item : answer.json().at("output")) {
    EXPECT_EQ(item.at("type"), "function_call");
    EXPECT_EQ(item.at("name"), "g");
  }
}

TEST_F(ToolsTest, ATemplateOfOneCallGetsRepliesOfOne) {
  const std::string members = R"("tool_choice": "required", "logit_bias": {"59": 100})";  // ';'
  EXPECT_GT(Choice("llama", members).at("message").at("tool_calls").size(), 1U);
  EXPECT_EQ(Choice("single", members).at("message").at("tool_calls").size(), 1U);
}

// A call, put together from the deltas of a stream.
void AddDelta(const json& delta, json& calls) {
  for (const json& news : delta.value("tool_calls", json::array())) {
    const size_t index = news.at("index");
    const json& function = news.at("function");
    if (index == calls.size()) {
      calls.push_back({{"id", news.at("id")}, {"type", news.at("type")}, {"function", function}});
      continue;
    }
    EXPECT_EQ(index + 1, calls.size());
    EXPECT_FALSE(function.contains("name"));
    calls[index]["function"]["arguments"].get_ref<std::string&>() +=
        function.at("arguments").get<std::string>();
  }
}

TEST_F(ToolsTest, AStreamHasTheSameCalls) {
  for (const auto& [model, mark] : kFormats) {
    SCOPED_TRACE(model);
    const std::string members = R"("tool_choice": "required", "n": 2)";
    const json whole = Send(model, members).json().at("choices");
    client_.Send("POST", kChat,
                 R"({"model": ")" + model +
                     R"(", "messages": [{"role": "user", "content": "Hi"}], "seed": 7, "tools": )" +
                     kTools + ", " + members + R"(, "stream": true})");
    HttpClient::Events events(client_);
    std::vector<json> calls(2, json::array());
    std::vector<json> reasons(2);
    for (const json& event : events.All()) {
      const json& choice = event.at("choices")[0];
      const size_t index = choice.at("index");
      AddDelta(choice.at("delta"), calls[index]);
      if (!choice.at("finish_reason").is_null()) reasons[index] = choice.at("finish_reason");
    }
    for (const size_t i : {0, 1}) {
      EXPECT_EQ(reasons[i], "tool_calls");
      ASSERT_EQ(calls[i].size(), whole[i].at("message").at("tool_calls").size());
      for (size_t j = 0; j < calls[i].size(); ++j) {
        EXPECT_EQ(calls[i][j].at("function"),
                  whole[i].at("message").at("tool_calls")[j].at("function"));
      }
    }
  }
}

TEST_F(ToolsTest, CallsOrAnAnswerOfAForm) {
  const std::string form =
      R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema":
         {"type": "object", "properties": {"k": {"const": 1}}, "required": ["k"],
          "additionalProperties": false}}}, "logit_bias": )";
  const json answer = Choice("tagged", form + R"({"123": 100})");
  EXPECT_EQ(answer.at("finish_reason"), "stop");
  EXPECT_EQ(json::parse(answer.at("message").at("content").get<std::string>()), json({{"k", 1}}));
  const json call = Choice("tagged", form + R"({"60": 100})");
  EXPECT_EQ(call.at("finish_reason"), "tool_calls");
  EXPECT_GE(call.at("message").at("tool_calls").size(), 1U);
}

TEST_F(ToolsTest, ACutCallIsWhatCame) {
  const json choice = Choice(
      "named",
      R"("tool_choice": {"type": "function", "function": {"name": "pick"}}, "max_tokens": 30)");
  EXPECT_EQ(choice.at("finish_reason"), "length");
  const json& call = choice.at("message").at("tool_calls")[0].at("function");
  EXPECT_EQ(call.at("name"), "pick");
  EXPECT_EQ(call.at("arguments").get<std::string>().size(),
            30 - std::string("[TOOL_CALLS]pick[ARGS]").size());
}

TEST_F(ToolsTest, MarkersMayBeSpecialTokens) {
  const std::string likely = R"("logit_bias": {"258": 100, "259": 100})";
  const HttpAnswer called = Send(
      "special", R"("tool_choice": {"type": "function", "function": {"name": "now"}}, )" + likely);
  ASSERT_EQ(called.status, 200) << called.body;
  const json reply = called.json();
  const json& function = reply.at("choices")[0].at("message").at("tool_calls")[0].at("function");
  ExpectFits(function);
  EXPECT_EQ(reply.at("usage").at("completion_tokens"),
            2 + 3 + function.at("arguments").get<std::string>().size())
      << "two markers, a name and its arguments";
  const auto content = [&](const std::string& members) {
    client_.Send("POST", kChat,
                 R"({"model": "special", "messages": [{"role": "user", "content": "Hi"}],
                     "max_tokens": 2, "tools": [{"function": {"name": "f"}}], )" +
                     members + R"(, "logit_bias": {"258": 100}})");
    return client_.Read().json().at("choices")[0].at("message").at("content");
  };
  EXPECT_EQ(content(R"("tool_choice": "auto")"), "[TOOL_CALLS][TOOL_CALLS]") << "no call";
  EXPECT_EQ(content(R"("tool_choice": "none")"), "");
}

TEST_F(ToolsTest, NoneAndAutoAreText) {
  const std::string braces = R"("logit_bias": {"123": 100}, "max_tokens": 4)";
  const json none = Choice("llama", braces + R"(, "tool_choice": "none")").at("message");
  EXPECT_EQ(none.at("content"), "{{{{");
  EXPECT_FALSE(none.contains("tool_calls"));
  EXPECT_NE(Choice("llama", braces).at("message").at("content"), "{{{{") << "the begin of a call";
  const json strict = Choice("tagged", R"("max_tokens": 4)");
  EXPECT_EQ(strict.at("finish_reason"), "length");
  EXPECT_NE(strict.at("message").at("content"), nullptr);
}

TEST_F(ToolsTest, PromptsHaveToolsCallsAndResults) {
  const std::string messages =
      R"("messages": [{"role": "user", "content": "Q"},
          {"role": "assistant", "content": null, "tool_calls": [
            {"id": "abc", "type": "function", "function": {"name": "f", "arguments": "{\"b\": 1, \"a\": 2}"}},
            {"function": {"name": "f", "arguments": {"z": 1, "y": {"b": 1, "a": 2}}}}]},
          {"role": "tool", "tool_call_id": "abc", "content": [{"type": "text", "text": "R"}]}])";
  const std::string shown =
      "user:Q;assistant:{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": 2}}"
      "{\"name\": \"f\", \"arguments\": {\"z\": 1, \"y\": {\"b\": 1, \"a\": 2}}};tool:Rabc;";
  EXPECT_EQ(Prompt("tagged", messages), shown);
  const std::string tool =
      R"([{"type": "function", "function": {"name": "f", "strict": true, "parameters":
           {"type": "object", "properties": {"z": {}, "a": {}}}}}])";
  EXPECT_EQ(Prompt("tagged", messages + R"(, "tools": )" + tool),
            "{\"name\": \"f\", \"parameters\": {\"type\": \"object\", \"properties\": {\"z\": {}, "
            "\"a\": {}}}}|" +
                shown);
  EXPECT_EQ(Prompt("tagged", messages + R"(, "tool_choice": "none", "tools": )" + tool), shown);
  EXPECT_THAT(Prompt("plain", messages), HasSubstr("User:\nQ\n\nAssistant:\n<tool_call>\n{"));
}

TEST_F(ToolsTest, PromptsOfOtherApisAreTheSame) {
  const std::string calls =
      R"("messages": [{"role": "user", "content": "Q"},
          {"role": "assistant", "content": "T", "tool_calls": [
            {"id": "1", "function": {"name": "f", "arguments": {"z": 1, "a": 2}}}]},
          {"role": "tool", "tool_call_id": "1", "content": "R"}, {"role": "user", "content": "S"}],
          "tools": [{"function": {"name": "f", "parameters": {"type": "object"}}}])";
  const auto bytes = static_cast<int64_t>(Prompt("tagged", calls).size());
  EXPECT_EQ(bytes, std::ssize(std::string(R"({"name": "f", "parameters": {"type": "object"}}|)"
                                          R"(user:Q;assistant:T{"name": "f", "arguments": )"
                                          R"({"z": 1, "a": 2}};tool:R1;user:S;)")));
  const auto prompt_tokens = [&](const std::string& path, const std::string& body) {
    client_.Send("POST", path, R"({"model": "tagged", )" + body + "}");
    const HttpAnswer answer = client_.Read();
    EXPECT_EQ(answer.status, 200) << answer.body;
    const json reply = answer.json();
    if (reply.contains("prompt_eval_count")) return reply.at("prompt_eval_count");
    return reply.contains("input_tokens") ? reply.at("input_tokens")
                                          : reply.at("usage").at("input_tokens");
  };
  EXPECT_EQ(
      prompt_tokens("/api/chat", calls + R"(, "stream": false, "options": {"num_predict": 1})"),
      bytes);
  EXPECT_EQ(prompt_tokens("/v1/messages/count_tokens",
                          R"("messages": [{"role": "user", "content": "Q"},
                        {"role": "assistant", "content": [{"type": "text", "text": "T"},
                          {"type": "tool_use", "id": "1", "name": "f", "input": {"z": 1, "a": 2}}]},
                        {"role": "user", "content": [
                          {"type": "tool_result", "tool_use_id": "1", "content": "R"},
                          {"type": "text", "text": "S"}]}],
                       "tools": [{"name": "f", "input_schema": {"type": "object"}}])"),
            bytes);
  EXPECT_EQ(
      prompt_tokens(
          "/v1/responses",
          R"("input": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "T"},
                      {"type": "function_call", "call_id": "1", "name": "f",
                       "arguments": "{\"z\": 1, \"a\": 2}"},
                      {"type": "function_call_output", "call_id": "1", "output": "R"},
                      {"role": "user", "content": "S"}], "max_output_tokens": 1,
                   "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}])"),
      bytes);
}

struct BadTools {
  std::string members, param, message;
};

TEST_F(ToolsTest, ErrorsNameTheField) {
  const auto function = [](const std::string& members) {
    return R"("tools": [{"type": "function", "function": {)" + members + "}}]";
  };
  const auto by_name = [](const std::string& name) -> json {
    return {{"type", "function"}, {"function", {{"name", name}}}};
  };
  const auto allowed = [&](const json& object) {
    const json choice = {{"type", "allowed_tools"}, {"allowed_tools", object}};
    return function(R"("name": "a")") + R"(, "tool_choice": )" + choice.dump();
  };
  std::string many = R"("tools": [)";
  for (int i = 0; i < 129; ++i) many += (i > 0 ? ",{}" : "{}");
  const std::vector<BadTools> cases = {
      {R"("tools": {})", "tools", "allowed: an array of functions"},
      {R"("tools": [3])", "tools[0]", "allowed: an object"},
      {R"("tools": [{"type": "web_search"}])", "tools[0].type", "allowed: \"function\""},
      {R"("tools": [{"type": "function", "function": 3}])", "tools[0].function", "allowed"},
      {R"("tools": [{"type": "function", "function": {}, "x": 1}])", "tools[0].function.name",
       "is missing"},
      {function(R"("name": "")"), "tools[0].function.name", "allowed: 1 to 128 letters"},
      {function(R"("name": "a b")"), "tools[0].function.name", "is \"a b\""},
      {function(R"("name": ")" + std::string(129, 'a') + "\""), "tools[0].function.name",
       "allowed: 1 to 128"},
      {function(R"("name": "a", "x": 1)"), "tools[0].function.x", "is not a known field"},
      {function(R"("name": "a", "strict": "yes")"), "tools[0].function.strict", "is \"yes\""},
      {function(R"("name": 1)"), "tools[0].function.name", "is 1"},
      {function(R"("name": "a", "parameters": 3)"), "tools[0].function.parameters",
       "allowed: a JSON Schema"},
      {function(R"("name": "a", "parameters": {"type": "string"})"),
       "tools[0].function.parameters.type", "allowed: \"object\""},
      {function(R"("name": "a", "parameters": {"properties": {"b": {"not": {}}}})") +
           R"(, "tool_choice": "required")",
       "tools[0].function.parameters.properties.b.not", "is not supported"},
      {function(R"("name": "a", "strict": true, "parameters": {"properties": {"b": {"if": {}}}})"),
       "tools[0].function.parameters.properties.b.if", "is not supported"},
      {R"("tools": [{"function": {"name": "a"}}, {"function": {"name": "a"}}])",
       "tools[1].function.name", "is repeated"},
      {many + "]", "tools", "has 129 tools; allowed: at most 128"},
      {function(R"("name": "a", "description": ")" + std::string(300'000, 'a') + "\""), "tools",
       "allowed: at most 262144"},
      {function(R"("name": "a")") + R"(, "tool_choice": "any")", "tool_choice", "is \"any\""},
      {function(R"("name": "a")") +
           R"(, "tool_choice": {"type": "function", "function": {"name": "b"}})",
       "tool_choice", "which is not in tools"},
      {function(R"("name": "a")") + R"(, "tool_choice": {"type": "function"})", "tool_choice",
       "allowed: \"none\""},
      {function(R"("name": "a")") +
           R"(, "tool_choice": {"type": "function", "function": {"name": ""}})",
       "tool_choice", "allowed: \"none\""},
      {R"("tools": [], "tool_choice": "required")", "tool_choice", "but tools has none"},
      {allowed(3), "tool_choice.allowed_tools", "is 3; allowed: an object"},
      {allowed({{"mode", "auto"}}), "tool_choice.allowed_tools.tools", "is missing"},
      {allowed({{"tools", json::array({by_name("a")})}}), "tool_choice.allowed_tools.mode",
       "is missing"},
      {allowed({{"mode", "none"}, {"tools", json::array({by_name("a")})}}),
       "tool_choice.allowed_tools.mode", "is \"none\"; allowed: \"auto\", \"required\""},
      {allowed({{"mode", "auto"}, {"tools", json::array()}}), "tool_choice.allowed_tools.tools",
       "allowed: an array of functions"},
      {allowed({{"mode", "auto"}, {"tools", json::array({by_name("a"), json{{"type", "mcp"}}})}}),
       "tool_choice.allowed_tools.tools[1]", "allowed: a function by its name"},
      {allowed({{"mode", "auto"}, {"tools", json::array({by_name("a")})}, {"x", 1}}),
       "tool_choice.allowed_tools.x", "is not a known field"},
      {allowed({{"mode", "auto"}, {"tools", json::array({by_name("a"), by_name("b")})}}),
       "tool_choice", "allows \"b\", which is not in tools; allowed: the names of tools"},
      {function(
           R"("name": "a", "parameters": {"properties": {"b": {"$ref": "#"}}, "required": ["b"]})") +
           R"(, "tool_choice": "required")",
       "tools", "has no finite text"},
  };
  for (const auto& [members, param, message] : cases) {
    SCOPED_TRACE(members.substr(0, 200));
    client_.Send("POST", kChat,
                 R"({"model": "tagged", "max_tokens": 2, "messages": [{"role": "user",
                     "content": "Hi"}], )" +
                     members + "}");
    const HttpAnswer answer = client_.Read();
    ASSERT_EQ(answer.status, 400) << answer.body;
    EXPECT_EQ(answer.error("param"), param);
    EXPECT_THAT(answer.message(), HasSubstr(message));
  }
  for (const auto& [message, param] : std::map<std::string, std::string>{
           {R"({"role": "assistant", "tool_calls": 3})", "tool_calls"},
           {R"({"role": "assistant", "tool_calls": [3]})", "tool_calls[0]"},
           {R"({"role": "assistant", "tool_calls": [{}]})", "tool_calls[0].function"},
           {R"({"role": "assistant", "tool_calls": [{"function": {}}]})",
            "tool_calls[0].function.name"},
           {R"({"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": 3}}]})",
            "tool_calls[0].function.arguments"},
           {R"({"role": "assistant", "tool_calls": []})", "content"},
           {R"({"role": "user", "content": "a", "tool_call_id": "x"})", "tool_call_id"},
           {R"({"role": "tool"})", "content"}}) {
    SCOPED_TRACE(message);
    client_.Send("POST", kChat,
                 R"({"model": "tagged", "max_tokens": 2, "messages": [)" + message + "]}");
    const HttpAnswer answer = client_.Read();
    ASSERT_EQ(answer.status, 400) << answer.body;
    EXPECT_EQ(answer.error("param"), "messages[0]." + param);
  }
}

TEST_F(ToolsTest, OllamasToolsAndCalls) {
  const auto chat = [](const std::string& name) {
    return "\"tools\": " + kTools +
           R"(, "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant",
               "content": "", "tool_calls": [{"function": {"name": "now", "arguments": {}}}]},
               {"role": "tool", "content": "noon", ")" +
           name + R"(": "now"}])";
  };
  client_.Send("POST", "/api/chat",
               R"({"model": "tagged", "stream": false, "options": {"num_predict": 4}, )" +
                   chat("tool_name") + "}");
  const HttpAnswer answer = client_.Read();
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_FALSE(answer.json().at("message").contains("tool_calls"));
  const std::string prompt = Prompt("tagged", chat("name"));
  EXPECT_THAT(prompt, HasSubstr("\"now\", \"arguments\": {}};tool:noonnow;"));
  EXPECT_EQ(answer.json().at("prompt_eval_count"), prompt.size());
}

// Finding the content again for each call would take time quadratic in the body.
TEST_F(ToolsTest, AMessageOfManyMembersAndCallsIsReadInLinearTime) {
  std::string message = R"({"role": "assistant")";
  for (int i = 0; i < 200'000; ++i) message += ",\"m" + std::to_string(i) + "\":0";
  message += ",\"content\":[";
  const std::string call = R"({"type":"tool_use","name":"f","input":{}})";
  for (int i = 0; i < 50'000; ++i) message += i == 0 ? call : "," + call;
  client_.Send("POST", kChat, R"({"model": "tagged", "messages": [)" + message + "]}]}");
  const HttpAnswer answer = client_.Read();
  ASSERT_EQ(answer.status, 400) << answer.body;
  EXPECT_EQ(answer.error("param"), "messages[0].m0");
}

TEST_F(ToolsTest, AnErrorNamesTheClientsMessage) {
  client_.Send("POST", kChat,
               R"({"model": "plain", "continue_final_message": true,
                   "add_generation_prompt": false, "messages": [
                     {"role": "user", "content": "Hi"}, {"role": "user", "content": "Hi"}],
                   "tools": )" +
                   kTools + "}");
  const HttpAnswer answer = client_.Read();
  ASSERT_EQ(answer.status, 400) << answer.body;
  EXPECT_EQ(answer.error("param"), "messages[1].role") << "not shifted by the tools' message";
}

TEST_F(ToolsTest, AResponseShowsItsTools) {
  const auto response = [&](const std::string& members) {
    client_.Send("POST", "/v1/responses",
                 R"({"model": "tagged", "input": "Hi", "max_output_tokens": 1)" + members + "}");
    const HttpAnswer answer = client_.Read();
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  };
  const json plain = response("");
  EXPECT_EQ(plain.at("tools"), json::array());
  EXPECT_EQ(plain.at("tool_choice"), "auto");
  EXPECT_EQ(plain.at("parallel_tool_calls"), true);
  const json tools = {{{"type", "function"}, {"name", "f"}, {"strict", true}}};
  const json choice = {{"type", "function"}, {"name", "f"}};
  const json called = response(R"(, "parallel_tool_calls": false, "tools": )" + tools.dump() +
                               R"(, "tool_choice": )" + choice.dump());
  EXPECT_EQ(called.at("tools"), tools);
  EXPECT_EQ(called.at("tool_choice"), choice);
  EXPECT_EQ(called.at("parallel_tool_calls"), false);
}

// Responses to replies that the tests write, as a model without a grammar would.
class AnswerTest : public testing::Test {
 protected:
  AnswerTest() {
    ReplyTools tools;
    tools.names = {"f"};
    request_.reply.tools = std::make_shared<const ReplyTools>(tools);
  }
  static StreamChunk Chunk(const std::string& text, bool last) {
    StreamChunk chunk;
    chunk.text = text;
    if (last) chunk.completion.emplace();
    return chunk;
  }
  // The events of the reply, byte by byte.
  template <typename OneAnswer>
  std::vector<json> Stream();

  ModelInfo model_;
  std::string id_ = "r-1";
  std::vector<PromptTokens> prompts_{1};
  CompletionRequest request_;
  const std::string reply_ =
      "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
};

TEST_F(AnswerTest, AChatsCallsAreSeparateFromItsContent) {
  ChatCompletion whole({model_, id_, prompts_}, request_);
  whole.Add(Chunk(reply_, true));
  const json choice = json::parse(whole.Whole()).at("choices")[0];
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  EXPECT_EQ(choice.at("message").at("content"), "Let me see.");
  ASSERT_EQ(choice.at("message").at("tool_calls").size(), 1U);
  EXPECT_EQ(choice.at("message").at("tool_calls")[0].at("function"),
            json({{"name", "f"}, {"arguments", "{\"a\": 1}"}}));
  ChatCompletion stream({model_, id_, prompts_}, request_);
  std::string content;
  size_t deltas = 0;
  json calls = json::array();
  for (size_t i = 0; i < reply_.size(); ++i) {
    const std::string event = stream.Events(Chunk(reply_.substr(i, 1), i + 1 == reply_.size()));
    if (event.empty()) continue;
    const json delta =
        json::parse(event.substr(std::string("data: ").size())).at("choices")[0].at("delta");
    content += delta.value("content", "");
    AddDelta(delta, calls);
    if (delta.contains("tool_calls")) ++deltas;
  }
  EXPECT_EQ(content, "Let me see.");
  EXPECT_EQ(deltas, 1 + std::string("\"a\": 1}").size()) << "arguments come piece by piece";
  EXPECT_EQ(calls, choice.at("message").at("tool_calls"));
}

// The data of events with names.
std::vector<json> DataOf(const std::string& events) {
  constexpr std::string_view kData = "\ndata: ";
  std::vector<json> all;
  for (size_t at = events.find(kData); at != events.npos; at = events.find(kData, at + 1)) {
    const size_t begin = at + kData.size();
    all.push_back(json::parse(events.substr(begin, events.find('\n', begin) - begin)));
  }
  return all;
}

template <typename OneAnswer>
std::vector<json> AnswerTest::Stream() {
  OneAnswer stream({model_, id_, prompts_}, request_);
  std::string events = stream.BeginEvents();
  for (size_t i = 0; i < reply_.size(); ++i) {
    events += stream.Events(Chunk(reply_.substr(i, 1), i + 1 == reply_.size()));
  }
  return DataOf(events + stream.EndEvents());
}

TEST_F(AnswerTest, AMessagesCallsAreBlocks) {
  MessagesAnswer whole({model_, id_, prompts_}, request_);
  whole.Add(Chunk(reply_, true));
  const json message = json::parse(whole.Whole());
  EXPECT_EQ(message.at("stop_reason"), "tool_use");
  ASSERT_EQ(message.at("content").size(), 2U);
  EXPECT_EQ(message.at("content")[0], json({{"type", "text"}, {"text", "Let me see."}}));
  EXPECT_EQ(message.at("content")[1].at("type"), "tool_use");
  EXPECT_EQ(message.at("content")[1].at("name"), "f");
  EXPECT_EQ(message.at("content")[1].at("input"), json({{"a", 1}}));
  std::string text, arguments;
  size_t deltas = 0;
  json block;
  for (const json& data : Stream<MessagesAnswer>()) {
    if (data.at("type") == "content_block_start") block = data.at("content_block");
    if (data.at("type") != "content_block_delta") continue;
    text += data.at("delta").value("text", "");
    arguments += data.at("delta").value("partial_json", "");
    if (data.at("delta").contains("partial_json")) ++deltas;
    EXPECT_EQ(data.at("index"), arguments.empty() ? 0 : 1);
  }
  EXPECT_EQ(text, "Let me see.");
  EXPECT_EQ(deltas, arguments.size());
  EXPECT_EQ(arguments, "{\"a\": 1}");
  EXPECT_EQ(block.at("id"), message.at("content")[1].at("id"));
}

TEST_F(AnswerTest, AResponsesCallsAreItems) {
  model_.tokenizer = std::make_shared<const ByteTokenizer>();
  ResponsesAnswer whole({model_, id_, prompts_}, request_);
  whole.Add(Chunk(reply_, true));
  const json output = json::parse(whole.Whole()).at("output");
  ASSERT_EQ(output.size(), 2U);
  EXPECT_EQ(output[0].at("content")[0].at("text"), "Let me see.");
  EXPECT_EQ(output[1].at("type"), "function_call");
  EXPECT_EQ(output[1].at("name"), "f");
  EXPECT_EQ(output[1].at("arguments"), "{\"a\": 1}");
  const std::vector<json> events = Stream<ResponsesAnswer>();
  EXPECT_EQ(events.back().at("response").at("output"), output);
  std::string arguments;
  size_t deltas = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].at("sequence_number"), i);
    if (events[i].at("type") != "response.function_call_arguments.delta") continue;
    EXPECT_EQ(events[i].at("item_id"), output[1].at("id"));
    EXPECT_EQ(events[i].at("output_index"), 1);
    arguments += events[i].at("delta").get<std::string>();
    ++deltas;
  }
  EXPECT_EQ(arguments, "{\"a\": 1}");
  EXPECT_EQ(deltas, arguments.size());
}

TEST_F(AnswerTest, CallsByAGrammarMayBeDeep) {
  ReplyTools tools = *request_.reply.tools;
  tools.by_grammar = true;
  request_.reply.tools = std::make_shared<const ReplyTools>(tools);
  const std::string arguments = R"({"a":)" + std::string(100, '[') + std::string(100, ']') + "}";
  const StreamChunk chunk = Chunk(
      R"(<tool_call>{"name": "f", "arguments": )" + arguments + "}</tool_call>", /*last=*/true);
  MessagesAnswer message({model_, id_, prompts_}, request_);
  message.Add(chunk);
  EXPECT_EQ(json::parse(message.Whole()).at("content")[0].at("input"), json::parse(arguments));
  OllamaChatAnswer chat({model_, id_, prompts_}, request_);
  chat.Add(chunk);
  const json calls = json::parse(chat.Whole()).at("message").at("tool_calls");
  EXPECT_EQ(calls[0].at("function").at("arguments"), json::parse(arguments));
}

TEST_F(AnswerTest, WholeItemsOfACutResponseAreComplete) {
  model_.tokenizer = std::make_shared<const ByteTokenizer>();
  StreamChunk last = Chunk(reply_, true);
  last.completion->reason = serving::FinishReason::kLength;
  ResponsesAnswer stream({model_, id_, prompts_}, request_);
  std::string events = stream.Events(last);
  events += stream.EndEvents();
  for (const json& data : DataOf(events)) {
    if (data.at("type") == "response.output_item.done") {
      EXPECT_EQ(data.at("item").at("status"), "completed") << data;
    }
  }
  const json response = DataOf(events).back().at("response");
  EXPECT_EQ(response.at("status"), "incomplete");
  for (const json& item : response.at("output")) EXPECT_EQ(item.at("status"), "completed");
  last.text = "Let me";
  ResponsesAnswer cut({model_, id_, prompts_}, request_);
  cut.Add(last);
  EXPECT_EQ(json::parse(cut.Whole()).at("output")[0].at("status"), "incomplete");
}

TEST_F(AnswerTest, OllamasCallsHaveArgumentsAsObjects) {
  OllamaChatAnswer whole({model_, id_, prompts_}, request_);
  whole.Add(Chunk(reply_ + reply_, true));
  const json message = json::parse(whole.Whole()).at("message");
  EXPECT_EQ(message.at("content"), "Let me see.Let me see.");
  ASSERT_EQ(message.at("tool_calls").size(), 2U);
  EXPECT_EQ(message.at("tool_calls")[0].at("function"),
            json({{"name", "f"}, {"arguments", {{"a", 1}}}}));
  OllamaChatAnswer stream({model_, id_, prompts_}, request_);
  json calls = json::array();
  const auto read = [&](const std::string& line) {
    if (line.empty()) return;
    for (const json& call : json::parse(line).at("message").value("tool_calls", json::array())) {
      calls.push_back(call);
    }
  };
  for (size_t i = 0; i < reply_.size(); ++i) {
    read(stream.Events(Chunk(reply_.substr(i, 1), i + 1 == reply_.size())));
  }
  read(stream.EndEvents());
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0], message.at("tool_calls")[0]);
}

}  // namespace
}  // namespace triptych::server::tools_test
