// Tests of invalid request bodies: one clear error each, and the server continues.
#include <cstdio>

#include "tests/server/http/http_client.h"
#include "tests/server/test_server.h"

namespace triptych::server::bad_bodies_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kPaths[] = {"/v1/completions", "/v1/chat/completions",
                                  "/v1/responses",   "/v1/messages",
                                  "/tokenize",       "/detokenize"};
constexpr const char* kChat = "/v1/chat/completions";

// A model whose context allows bodies of 32 MiB.
TestServerOptions LongBodies() {
  TestServerOptions options = WithHttp({.models = {EndlessModel()}});
  options.chat_template = *BuiltInTemplate("plain");
  return options;
}

HttpAnswer Chat(const TestServer& server) {
  HttpClient client(server.http_address());
  return client.Post(kChat,
                     {{"messages", {{{"role", "user"}, {"content", "a"}}}}, {"max_tokens", 1}});
}

void ExpectRefused(const TestServer& server, const std::string& path, const std::string& body,
                   const json& param, const std::string& message) {
  SCOPED_TRACE(path + " " + body.substr(0, 80));
  HttpClient client(server.http_address());
  const HttpAnswer answer = client.Ask("POST", path, body, {});
  EXPECT_EQ(answer.status, 400) << answer.body;
  EXPECT_EQ(answer.error("type"), "invalid_request_error");
  EXPECT_EQ(answer.error("param"), param);
  EXPECT_THAT(answer.message(), HasSubstr(message));
  EXPECT_LT(answer.body.size(), 1024);
}

std::string Repeated(const std::string& text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

TEST(BadBodiesTest, BodiesThatAreNoJsonObject) {
  const TestServer server(LongBodies());
  for (const char* const path : kPaths) {
    for (const std::string body : {"", "{", "[]", "3", "null", "\"a\"", "\xff", "{\"a\": 1} x",
                                   "{\"a\": 1, \"a\": 2}", "{'a': 1}", "{\"a\": NaN}"}) {
      ExpectRefused(server, path, body, nullptr, "the body");
    }
    ExpectRefused(server, path, R"({"model": "endless", "model": "endless"})", nullptr,
                  "names \"model\" twice");
  }
  ExpectRefused(server, kChat, R"({"messages": [{"role": "user", "role": "user"}]})", nullptr,
                "names \"role\" twice");
  EXPECT_EQ(Chat(server).status, 200);
}

TEST(BadBodiesTest, ValuesInsideEachOther) {
  const TestServer server(LongBodies());
  constexpr size_t kDepth = 1 << 20;
  for (const char* const path : kPaths) {
    for (const std::string& body :
         {Repeated("[", kDepth), Repeated("{\"a\":", kDepth),
          "{\"messages\":" + Repeated("[", kDepth),
          "{\"messages\":" + Repeated("[", kDepth) + Repeated("]", kDepth) + "}"}) {
      ExpectRefused(server, path, body, nullptr,
                    "is nested too deeply; allowed: at most 64 levels");
    }
  }
  EXPECT_EQ(Chat(server).status, 200);
}

TEST(BadBodiesTest, MessagesWithoutEnd) {
  const TestServer server(LongBodies());
  const std::string message = R"({"role":"user","content":""},)";
  const auto body = [&](size_t count) {
    return "{\"messages\":[" + Repeated(message, count) + message.substr(0, message.size() - 1) +
           "]}";
  };
  // Each message is a few tokens, and three JSON values.
  ExpectRefused(server, kChat, body(300'000), "messages", "allowed: at most 1048575");
  ExpectRefused(server, kChat, body(400'000), nullptr, "holds more than 1048576 values");
  ExpectRefused(server, kChat,
                R"({"messages":[{"role":"user","content":[)" +
                    Repeated(R"({"type":"text","text":""},)", 300'000) + "3]}]}",
                "messages[0].content[300000]", "is 3");
  ExpectRefused(server, kChat,
                R"({"messages":[{"role":"user","content":")" + std::string(2 << 20, 'a') + "\"}]}",
                "messages", "allowed: at most 1048575");
  EXPECT_EQ(Chat(server).status, 200);
}

TEST(BadBodiesTest, PromptsAndStopsWithoutEnd) {
  const TestServer server(LongBodies());
  const auto list = [](const std::string& entry, size_t count) {
    return "[" + Repeated(entry + ",", count) + entry + "]";
  };
  const std::string path = "/v1/completions";
  ExpectRefused(server, path, R"({"prompt":)" + list("\"a\"", 900'000) + "}", "prompt",
                "has 900001 prompts; allowed: at most 128");
  ExpectRefused(server, path, R"({"prompt":)" + list("[1]", 300'000) + "}", "prompt",
                "has 300001 prompts; allowed: at most 128");
  ExpectRefused(server, path, R"({"prompt":"a","stop":)" + list("\"a\"", 900'000) + "}", "stop",
                "has more than 128 strings; allowed: at most 128");
  ExpectRefused(server, path, R"({"prompt":"a","stop_token_ids":)" + list("1", 900'000) + "}",
                "stop_token_ids", "has more than 64 tokens; allowed: at most 64");
  ExpectRefused(server, path, R"({"prompt":"a","allowed_token_ids":)" + list("1", 900'000) + "}",
                "allowed_token_ids", "has more than 1024 tokens; allowed: at most 1024");
  ExpectRefused(server, "/v1/responses",
                R"({"input":)" + list(R"({"role":"user","content":""})", 300'000) + "}", "input",
                "allowed: at most 1048575");
  EXPECT_EQ(Chat(server).status, 200);
}

TEST(BadBodiesTest, AGigabyte) {
  const TestServer server(LongBodies());
  const std::string head =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  const auto expect_too_large = [&](const std::string& request) {
    HttpClient client(server.http_address());
    client.SendText(request);
    const HttpAnswer answer = client.Read();
    EXPECT_EQ(answer.status, 413) << answer.body;
    EXPECT_EQ(answer.error("type"), "invalid_request_error");
    EXPECT_TRUE(client.IsClosed());
  };
  // With Content-Length, it is rejected before any of it arrives; in chunks, once it exceeds the
  // limit.
  expect_too_large(head + "Content-Length: 1073741824\r\n\r\n");
  expect_too_large(head + "Transfer-Encoding: chunked\r\n\r\n40000000\r\n");
  const std::string chunk = "100000\r\n" + std::string(1 << 20, ' ') + "\r\n";
  expect_too_large(head + "Transfer-Encoding: chunked\r\n\r\n" + Repeated(chunk, 33));
  EXPECT_EQ(Chat(server).status, 200);
}

}  // namespace
}  // namespace triptych::server::bad_bodies_test
