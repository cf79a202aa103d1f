// Tests of OpenAI's /v1/responses and Anthropic's /v1/messages: the same text as of a chat
// completion, in their schemas.
#include "server/http/responses.h"

#include <algorithm>
#include <string>
#include <vector>

#include "server/http/messages.h"
#include "tests/server/http/http_client.h"
#include "tests/server/test_server.h"

namespace triptych::server::responses_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::SizeIs;

class ResponsesTest : public testing::Test {
 protected:
  static TestServerOptions Options() {
    TestServerOptions options = WithHttp();
    options.models = {OneOfEachKind()[0]};
    options.chat_template = *BuiltInTemplate("plain");
    return options;
  }

  // The reply of a chat with a system and a user message, of at most `tokens` tokens.
  json Chat(int tokens, const json& members = json::object()) {
    json body = {{"messages",
                  {{{"role", "system"}, {"content", "Be"}}, {{"role", "user"}, {"content", "To"}}}},
                 {"max_tokens", tokens},
                 {"logit_bias", {{"120", 500}}},
                 {"temperature", 0}};
    body.update(members);
    return client_.Post("/v1/chat/completions", body).json();
  }
  // Names and data of all events.
  std::vector<std::pair<std::string, json>> Events(const std::string& path, const json& body) {
    client_.Send("POST", path, body.dump());
    HttpClient::Events stream(client_);
    EXPECT_EQ(stream.status(), 200);
    std::vector<std::pair<std::string, json>> events;
    while (const auto text = stream.NextText()) {
      if (*text == ":") continue;
      const size_t end = text->find("\ndata: ");
      events.emplace_back(text->substr(7, end - 7), json::parse(text->substr(end + 7)));
      EXPECT_EQ(events.back().first, events.back().second.at("type"));
    }
    EXPECT_TRUE(stream.ended_well());
    return events;
  }

  const TestServer server_{Options()};
  HttpClient client_{server_.http_address()};
};

TEST_F(ResponsesTest, AResponseIsTheChatsReply) {
  const json chat = Chat(8);
  const json request = {{"model", "mha"},
                        {"instructions", "Be"},
                        {"input", "To"},
                        {"max_output_tokens", 8},
                        {"temperature", 0},
                        {"store", false},
                        {"logit_bias", {{"120", 500}}},
                        {"tools", json::array()},
                        {"tool_choice", "auto"},
                        {"truncation", "disabled"},
                        {"text", {{"format", {{"type", "text"}}}}}};
  const HttpAnswer answer = client_.Post("/v1/responses", request);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json response = answer.json();
  EXPECT_EQ(response.at("id"), "resp_" + answer.headers.at("x-request-id"));
  EXPECT_EQ(response.at("object"), "response");
  EXPECT_EQ(response.at("status"), "incomplete");
  EXPECT_EQ(response.at("incomplete_details").at("reason"), "max_output_tokens");
  const json& item = response.at("output")[0];
  EXPECT_EQ(item.at("role"), "assistant");
  EXPECT_EQ(item.at("content")[0].at("type"), "output_text");
  EXPECT_EQ(item.at("content")[0].at("text"), chat.at("choices")[0].at("message").at("content"));
  EXPECT_EQ(response.at("usage").at("input_tokens"), chat.at("usage").at("prompt_tokens"));
  EXPECT_EQ(response.at("usage").at("output_tokens"), 8);
  const json& cache = chat.at("usage").at("kv_cache");
  EXPECT_EQ(response.at("usage").at("kv_cache").at("used_bytes"), cache.at("used_bytes"));
  // The same input as a list of items, as the client sends a conversation.
  json items = request;
  items.erase("instructions");
  items["input"] = {{{"role", "developer"}, {"content", "Be"}},
                    {{"type", "message"},
                     {"role", "user"},
                     {"content", {{{"type", "input_text"}, {"text", "To"}}}}}};
  EXPECT_EQ(client_.Post("/v1/responses", items).json().at("output")[0].at("content"),
            item.at("content"));
}

TEST_F(ResponsesTest, AStreamHasTheEventsOfOpenAi) {
  json request = {{"input", "To"},    {"instructions", "Be"},         {"max_output_tokens", 8},
                  {"temperature", 0}, {"logit_bias", {{"120", 500}}}, {"stream", true}};
  const auto events = Events("/v1/responses", request);
  const std::string whole = Chat(8).at("choices")[0].at("message").at("content");
  std::vector<std::string> names;
  std::string text;
  for (size_t i = 0; i < events.size(); ++i) {
    const auto& [name, data] = events[i];
    EXPECT_EQ(data.at("sequence_number"), i);
    if (names.empty() || names.back() != name) names.push_back(name);
    if (name == "response.output_text.delta") text += data.at("delta");
    if (name == "response.output_text.done") {
      EXPECT_EQ(data.at("text"), whole);
    }
  }
  EXPECT_EQ(text, whole);
  EXPECT_THAT(names, testing::ElementsAre(
                         "response.created", "response.in_progress", "response.output_item.added",
                         "response.content_part.added", "response.output_text.delta",
                         "response.output_text.done", "response.content_part.done",
                         "response.output_item.done", "response.incomplete"));
  EXPECT_EQ(events.front().second.at("response").at("status"), "in_progress");
  EXPECT_EQ(events.back().second.at("response").at("output")[0].at("content")[0].at("text"), whole);
  request["logit_bias"] = {{"257", 1000}};
  EXPECT_EQ(Events("/v1/responses", request).back().first, "response.completed");
}

TEST_F(ResponsesTest, AMessageIsTheChatsReply) {
  const json chat = Chat(8);
  const json request = {{"model", "mha"},
                        {"system", {{{"type", "text"}, {"text", "Be"}}}},
                        {"messages", {{{"role", "user"}, {"content", "To"}}}},
                        {"max_tokens", 8},
                        {"temperature", 0},
                        {"logit_bias", {{"120", 500}}},
                        {"thinking", {{"type", "disabled"}}},
                        {"metadata", {{"user_id", "ann"}}}};
  const HttpAnswer answer = client_.Post("/v1/messages", request);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json message = answer.json();
  EXPECT_EQ(message.at("type"), "message");
  EXPECT_EQ(message.at("role"), "assistant");
  EXPECT_EQ(message.at("stop_reason"), "max_tokens");
  const std::string whole = chat.at("choices")[0].at("message").at("content");
  EXPECT_EQ(message.at("content"), json({{{"type", "text"}, {"text", whole}}}));
  const json& usage = message.at("usage");
  EXPECT_EQ(usage.at("input_tokens").get<int>() + usage.at("cache_read_input_tokens").get<int>(),
            chat.at("usage").at("prompt_tokens"));
  EXPECT_EQ(usage.at("kv_cache").at("used_bytes"),
            chat.at("usage").at("kv_cache").at("used_bytes"));
  json counted = request;
  counted.erase("max_tokens");
  EXPECT_EQ(client_.Post("/v1/messages/count_tokens", counted).json(),
            json({{"input_tokens", chat.at("usage").at("prompt_tokens")}}));

  json streamed = request;
  streamed["stream"] = true;
  std::vector<std::string> names;
  std::string text;
  for (const auto& [name, data] : Events("/v1/messages", streamed)) {
    if (names.empty() || names.back() != name) names.push_back(name);
    if (name == "content_block_delta") text += data.at("delta").at("text");
    if (name == "message_delta") {
      EXPECT_EQ(data.at("delta").at("stop_reason"), "max_tokens");
      EXPECT_EQ(data.at("usage").at("output_tokens"), 8);
      EXPECT_GT(data.at("usage").at("kv_cache").at("used_bytes"), 0);
    }
  }
  EXPECT_EQ(text, whole);
  EXPECT_THAT(names,
              testing::ElementsAre("message_start", "content_block_start", "content_block_delta",
                                   "content_block_stop", "message_delta", "message_stop"));

  json stopped = request;
  stopped["stop_sequences"] = {"xx"};
  stopped["logit_bias"] = {{"120", 1000}};
  const json end = client_.Post("/v1/messages", stopped).json();
  EXPECT_EQ(end.at("stop_reason"), "stop_sequence");
  EXPECT_EQ(end.at("stop_sequence"), "xx");
  stopped["logit_bias"] = {{"10", 1000}};  // ends the turn of the template
  EXPECT_EQ(client_.Post("/v1/messages", stopped).json().at("stop_reason"), "end_turn");
}

TEST_F(ResponsesTest, ErrorsNameTheMember) {
  struct Bad {
    const char* path;
    const char* body;
    const char* param;
    const char* message;
  };
  for (const Bad& bad : std::vector<Bad>{
           {"/v1/responses", R"({})", "input", "is missing"},
           {"/v1/responses", R"({"input": 3})", "input", "is 3; allowed: a string"},
           {"/v1/responses", R"({"input": []})", "input", "is []"},
           {"/v1/responses",
            R"({"input": [{"type": "reasoning", "content": [{"type": "image"}]}]})",
            "input[0].content[0].type", "is \"image\""},
           {"/v1/responses", R"({"input": [{"type": "reasoning", "encrypted_content": "x"}]})",
            "input[0].encrypted_content", "is not supported"},
           {"/v1/messages",
            R"({"max_tokens": 1, "messages": [{"role": "user",
                "content": [{"type": "thinking", "thinking": "a"}]}]})",
            "messages[0].content[0].type", "is \"thinking\""},
           {"/v1/responses",
            R"({"input": [{"type": "function_call_output", "role": "user", "content": ""}]})",
            "input[0].output", "is missing"},
           {"/v1/responses", R"({"input": "a", "previous_response_id": "resp_1"})",
            "previous_response_id", "is not supported"},
           {"/v1/responses", R"({"input": "a", "max_output_tokens": 0})", "max_output_tokens",
            "is 0; allowed"},
           {"/v1/responses", R"({"input": "a", "text": {"format": {"type": "json_schema"}}})",
            "text.format.schema", "is missing"},
           {"/v1/responses", R"({"input": "a", "n": 2})", "n", "is not a known field"},
           {"/v1/messages", R"({"messages": [{"role": "user", "content": "a"}]})", "max_tokens",
            "is missing"},
           {"/v1/messages",
            R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image"}]}]})",
            "messages[0].content[0].type", "is \"image\""},
           {"/v1/messages",
            R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
                "stop_sequences": [""]})",
            "stop_sequences[0]", "is 0 bytes long"},
       }) {
    SCOPED_TRACE(bad.body);
    const HttpAnswer answer = client_.Ask("POST", bad.path, bad.body, {});
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_EQ(answer.json().at("type"), "error");
    EXPECT_EQ(answer.error("param"), bad.param);
    EXPECT_THAT(answer.message(), HasSubstr(bad.message));
  }
  const json long_input = {{"input", std::string(100, 'a')}};
  const HttpAnswer too_long = client_.Post("/v1/responses", long_input);
  EXPECT_EQ(too_long.error("code"), "context_length_exceeded");
  EXPECT_EQ(too_long.error("param"), "input");
}

// A template that begins replies with thoughts, if it is told to, and shows those of the history.
constexpr const char* kThinking =
    "{% for m in messages %}{{ m.reasoning_content }}|{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}{{ '<think>' if think is not defined }}{% endif %}";

class ThoughtsTest : public testing::Test {
 protected:
  static TestServerOptions Options() {
    TestServerOptions options = WithHttp();
    options.models = {
        {.name = "mha", .config = OneOfEachKind()[0].config, .own_chat_template = kThinking}};
    return options;
  }

  // Members with which the reply is "a</think>b": each token lowers its own logit by 100.
  static json Forced(const json& members) {
    json body = {{"temperature", 0}, {"presence_penalty", 100}, {"logit_bias", json::object()}};
    int bias = 500;
    for (const unsigned char c : std::string("a</think>b")) {
      body["logit_bias"][std::to_string(c)] = bias;
      bias -= 9;
    }
    body.update(members);
    return body;
  }
  std::vector<json> Events(const std::string& path, json body) {
    body["stream"] = true;
    client_.Send("POST", path, body.dump());
    HttpClient::Events stream(client_);
    std::vector<json> events;
    while (const auto text = stream.NextText()) {
      const size_t data = text->find("data: ");
      if (data != text->npos) events.push_back(json::parse(text->substr(data + 6)));
    }
    EXPECT_TRUE(stream.ended_well());
    return events;
  }
  static std::vector<std::string> Types(const std::vector<json>& events) {
    std::vector<std::string> types;
    for (const json& event : events) types.push_back(event.at("type"));
    types.erase(std::unique(types.begin(), types.end()), types.end());
    return types;
  }

  const TestServer server_{Options()};
  HttpClient client_{server_.http_address()};
};

TEST_F(ThoughtsTest, OfAResponseAreAnItem) {
  const json body = Forced({{"input", "x"}, {"max_output_tokens", 10}});
  const json whole = client_.Post("/v1/responses", body).json();
  const json& output = whole.at("output");
  ASSERT_THAT(output, SizeIs(2));
  EXPECT_EQ(output[0].at("type"), "reasoning");
  EXPECT_EQ(output[0].at("status"), "completed");
  EXPECT_EQ(output[0].at("content"), json({{{"type", "reasoning_text"}, {"text", "a"}}}));
  EXPECT_EQ(output[1].at("type"), "message");
  EXPECT_EQ(output[1].at("status"), "incomplete");
  EXPECT_EQ(output[1].at("content")[0].at("text"), "b");
  EXPECT_EQ(whole.at("usage").at("output_tokens_details").at("reasoning_tokens"), 8);

  const std::vector<json> events = Events("/v1/responses", body);
  EXPECT_THAT(
      Types(events),
      testing::ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                           "response.content_part.added", "response.reasoning_text.delta",
                           "response.reasoning_text.done", "response.content_part.done",
                           "response.output_item.done", "response.output_item.added",
                           "response.content_part.added", "response.output_text.delta",
                           "response.output_text.done", "response.content_part.done",
                           "response.output_item.done", "response.incomplete"));
  for (size_t i = 0; i < events.size(); ++i) {
    SCOPED_TRACE(events[i].dump());
    EXPECT_EQ(events[i].at("sequence_number"), i);
    const std::string type = events[i].at("type");
    const bool thinks = type.find("reasoning") != type.npos;
    if (thinks || type.find("text") != type.npos) {
      EXPECT_EQ(events[i].at("output_index"), thinks ? 0 : 1);
    }
  }
  json last = events.back().at("response");
  EXPECT_EQ(last.at("output")[0].at("content"), output[0].at("content"));
  EXPECT_EQ(last.at("output")[1].at("content"), output[1].at("content"));
}

TEST_F(ThoughtsTest, OfAMessageAreABlock) {
  const json body =
      Forced({{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"max_tokens", 10}});
  EXPECT_EQ(client_.Post("/v1/messages", body).json().at("content"),
            json({{{"type", "thinking"}, {"thinking", "a"}, {"signature", ""}},
                  {{"type", "text"}, {"text", "b"}}}));
  const std::vector<json> events = Events("/v1/messages", body);
  EXPECT_THAT(Types(events), testing::ElementsAre(
                                 "message_start", "content_block_start", "content_block_delta",
                                 "content_block_stop", "content_block_start", "content_block_delta",
                                 "content_block_stop", "message_delta", "message_stop"));
  const auto with = [&](const std::string& type, int index) {
    json found;
    for (const json& event : events) {
      if (event.at("type") == type && event.at("index") == index) found = event;
    }
    return found;
  };
  EXPECT_EQ(with("content_block_start", 0).at("content_block"),
            json({{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}));
  EXPECT_EQ(with("content_block_delta", 0).at("delta"),
            json({{"type", "thinking_delta"}, {"thinking", "a"}}));
  EXPECT_EQ(with("content_block_delta", 1).at("delta"),
            json({{"type", "text_delta"}, {"text", "b"}}));
}

TEST_F(ThoughtsTest, ThatAreCutAreAllThatThereIs) {
  const json input = Forced({{"input", "x"}, {"max_output_tokens", 4}});
  const json response = client_.Post("/v1/responses", input).json();
  ASSERT_THAT(response.at("output"), SizeIs(1));
  EXPECT_EQ(response.at("output")[0].at("type"), "reasoning");
  EXPECT_EQ(response.at("output")[0].at("status"), "incomplete");
  EXPECT_EQ(Types(Events("/v1/responses", input)).back(), "response.incomplete");
  const json message =
      client_
          .Post("/v1/messages",
                Forced({{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"max_tokens", 4}}))
          .json();
  ASSERT_THAT(message.at("content"), SizeIs(1));
  EXPECT_EQ(message.at("content")[0].at("type"), "thinking");
}

}  // namespace
}  // namespace triptych::server::responses_test
