// Tests of Ollama's API: the same text as of a chat completion, in its schemas.
#include <string>
#include <vector>

#include "server/http/ollama_answer.h"
#include "tests/server/http/http_client.h"
#include "tests/server/test_server.h"

namespace triptych::server::ollama_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class OllamaTest : public testing::Test {
 protected:
  static TestServerOptions Options() {
    TestServerOptions options = WithHttp();
    options.models = {OneOfEachKind()[0], OneOfEachKind()[1]};
    options.models[0].chat_template = *BuiltInTemplate("plain");
    options.models.push_back({.name = "thinks",
                              .config = options.models[0].config,
                              .own_chat_template = "{{ messages[0].content }}<think>"});
    return options;
  }

  static json Ask(const json& members = json::object()) {
    json body = {{"model", "mha"},
                 {"messages",
                  {{{"role", "system"}, {"content", "Be"}}, {{"role", "user"}, {"content", "To"}}}},
                 {"options", {{"temperature", 0}, {"num_predict", 3}, {"seed", -1}}}};
    body.update(members);
    return body;
  }
  json ChatReply() {
    return client_
        .Post("/v1/chat/completions",
              {{"model", "mha"},
               {"messages",
                {{{"role", "system"}, {"content", "Be"}}, {{"role", "user"}, {"content", "To"}}}},
               {"temperature", 0},
               {"max_tokens", 3}})
        .json()
        .at("choices")[0]
        .at("message")
        .at("content");
  }
  // The lines of a stream.
  std::vector<json> Lines(const std::string& path, const json& body) {
    const HttpAnswer answer = client_.Post(path, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.headers.at("content-type"), "application/x-ndjson");
    std::vector<json> lines;
    for (size_t begin = 0; begin < answer.body.size();) {
      const size_t end = answer.body.find('\n', begin);
      lines.push_back(json::parse(answer.body.substr(begin, end - begin)));
      begin = end + 1;
    }
    return lines;
  }

  const TestServer server_{Options()};
  HttpClient client_{server_.http_address()};
};

TEST_F(OllamaTest, AChatIsAStreamOfLinesUnlessItIsToldNot) {
  const std::string reply = ChatReply();
  const std::vector<json> lines = Lines("/api/chat", Ask());
  std::string text;
  for (const json& line : lines) {
    EXPECT_EQ(line.at("model"), "mha");
    EXPECT_EQ(line.at("done"), &line == &lines.back());
    EXPECT_EQ(line.at("message").at("role"), "assistant");
    text += line.at("message").at("content");
  }
  EXPECT_EQ(text, reply);
  json body = Ask({{"stream", false}, {"keep_alive", "5m"}, {"think", false}, {"format", ""}});
  body["options"]["num_ctx"] = 8192;
  const json whole = client_.Post("/api/chat", body).json();
  EXPECT_EQ(whole.at("message"), json({{"role", "assistant"}, {"content", reply}}));
  for (const json& last : {whole, lines.back()}) {
    EXPECT_EQ(last.at("done"), true);
    EXPECT_EQ(last.at("done_reason"), "length");
    EXPECT_EQ(last.at("eval_count"), 3);
    EXPECT_EQ(last.at("prompt_eval_count"),
              2 + std::ssize(std::string("\n\nUser:\nTo\n\nAssistant:\n")) + 1);
    EXPECT_GT(last.at("total_duration"), 0);
    EXPECT_GE(
        last.at("total_duration").get<int64_t>(),
        last.at("prompt_eval_duration").get<int64_t>() + last.at("eval_duration").get<int64_t>());
    EXPECT_EQ(last.at("load_duration"), 0);
    const json& cache = last.at("kv_cache");
    EXPECT_EQ(cache.at("used_bytes"),
              cache.at("positions").get<int64_t>() * cache.at("bytes_per_position").get<int64_t>());
  }
}

TEST_F(OllamaTest, APromptIsAChatOfTheUserUnlessItIsRaw) {
  const std::string reply = ChatReply();
  json body = {{"model", "mha:latest"},
               {"prompt", "To"},
               {"system", "Be"},
               {"stream", false},
               {"options", {{"temperature", 0}, {"num_predict", 3}}}};
  const json whole = client_.Post("/api/generate", body).json();
  EXPECT_EQ(whole.at("response"), reply);
  EXPECT_EQ(whole.at("model"), "mha");
  body.erase("system");
  body["raw"] = true;
  const json raw = client_.Post("/api/generate", body).json();
  EXPECT_EQ(raw.at("prompt_eval_count"), 3);  // the begin token and two letters
  body.erase("raw");
  body["model"] = "gqa";  // without a template
  EXPECT_EQ(client_.Post("/api/generate", body).json().at("prompt_eval_count"), 3);
  std::string text;
  body.erase("stream");
  body["model"] = "mha";
  body["system"] = "Be";
  for (const json& line : Lines("/api/generate", body)) text += line.at("response");
  EXPECT_EQ(text, reply);
}

TEST_F(OllamaTest, OptionsHaveOllamasNames) {
  json body = Ask({{"stream", false}});
  body["options"] = {{"temperature", 0}, {"num_predict", -1},   {"stop", {"\n"}},
                     {"top_k", 40},      {"top_p", 0.9},        {"min_p", 0.05},
                     {"seed", 7},        {"repeat_penalty", 1}, {"repeat_last_n", 64}};
  EXPECT_EQ(client_.Post("/api/chat", body).status, 200);
  const struct {
    json options;
    const char* message;
  } bad[] = {{{{"temperature", 300}}, "temperature is 300"},
             {{{"repeat_penalty", 200}}, "repeat_penalty is 200"},
             {{{"repeat_penalty", 1.1}, {"repeat_last_n", -2}},
              "repeat_last_n is -2; allowed: -1 to 2147483647"},
             {{{"num_predict", "x"}}, "options.num_predict is \"x\""},
             {{{"mirostat", 1}}, "options.mirostat is 1"},
             {{{"logit_bias", {{"1", 2}}}}, "options.logit_bias is not a known field"}};
  for (const auto& [options, message] : bad) {
    body["options"] = options;
    const HttpAnswer answer = client_.Post("/api/chat", body);
    EXPECT_EQ(answer.status, 400);
    EXPECT_THAT(answer.json().at("error").get<std::string>(), HasSubstr(message));
  }
}

TEST_F(OllamaTest, PenaltiesSeeTheLastTokensThatTheRequestSays) {
  const auto reply = [this](int window) {
    const json body = {{"model", "mha"},
                       {"prompt", "To"},
                       {"stream", false},
                       {"options",
                        {{"num_predict", 40},
                         {"temperature", 0},
                         {"repeat_penalty", 100},
                         {"repeat_last_n", window},
                         {"penalize_newline", false}}}};
    const HttpAnswer answer = client_.Post("/api/generate", body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json().at("response").get<std::string>();
  };
  EXPECT_EQ(reply(1000), reply(-1)) << "the whole text";
  EXPECT_NE(reply(0), reply(-1)) << "no token: repeats are likely";
}

TEST_F(OllamaTest, ErrorsAreTexts) {
  const struct {
    std::string path;
    json body;
    int status;
    const char* message;
  } bad[] = {
      {"/api/chat", Ask({{"model", "other"}}), 404, "other"},
      {"/api/chat", {{"messages", json::array()}}, 400, "model is missing"},
      {"/api/chat", Ask({{"tools", {{{"type", "function"}}}}}), 400, "tools[0].function is"},
      {"/api/chat", Ask({{"format", "xml"}}), 400, "format is \"xml\""},
      {"/api/chat", Ask({{"model", "gqa"}}), 400, "has no chat template"},
      {"/api/chat", Ask({{"messages", {{{"role", "user"}, {"content", "a"}, {"images", {"x"}}}}}}),
       400, "messages[0].images"},
      {"/api/generate", {{"model", "mha"}, {"prompt", std::string(100, 'a')}}, 400, "prompt"},
      {"/api/generate", {{"model", "mha"}, {"prompt", "a"}, {"suffix", "b"}}, 400, "suffix is"},
      {"/api/generate",
       {{"model", "mha"}, {"prompt", "a"}, {"raw", true}, {"system", "b"}},
       400,
       "system is"},
      {"/api/show", {{"model", "other"}}, 404, "other"},
      {"/api/pull", json::object(), 404, "there is no path"},
      {"/api/tags", json::object(), 405, "is not supported"},
  };
  for (const auto& [path, body, status, message] : bad) {
    SCOPED_TRACE(path + body.dump());
    HttpClient client(server_.http_address());  // an unread body ends a connection
    const HttpAnswer answer = client.Post(path, body);
    EXPECT_EQ(answer.status, status);
    EXPECT_EQ(answer.json().size(), 1u);
    EXPECT_THAT(answer.json().at("error").get<std::string>(), HasSubstr(message));
  }
  EXPECT_THAT(client_.Ask("POST", "/api/chat", "{", {}).json().at("error").get<std::string>(),
              HasSubstr("JSON"));
}

TEST_F(OllamaTest, ARequestWithoutAPromptOnlyLoads) {
  for (const json& body : {json{{"model", "mha"}}, json{{"model", "mha"}, {"prompt", ""}}}) {
    const json answer = client_.Post("/api/generate", body).json();
    EXPECT_EQ(answer.at("done_reason"), "load");
    EXPECT_EQ(answer.at("response"), "");
  }
  EXPECT_EQ(client_.Post("/api/chat", {{"model", "mha"}, {"messages", json::array()}})
                .json()
                .at("message")
                .at("content"),
            "");
}

TEST_F(OllamaTest, ThoughtsAreAMember) {
  const json body = {{"model", "thinks"},
                     {"messages", {{{"role", "user"}, {"content", "a"}}}},
                     {"stream", false},
                     {"options", {{"temperature", 0}, {"num_predict", 4}}}};
  const json message = client_.Post("/api/chat", body).json().at("message");
  EXPECT_EQ(message.at("content"), "");
  EXPECT_NE(message.at("thinking"), "");
}

TEST_F(OllamaTest, ModelsAreListed) {
  const json tags = client_.Get("/api/tags").json().at("models");
  ASSERT_EQ(tags.size(), 3u);
  EXPECT_EQ(tags[0].at("name"), "mha");
  EXPECT_EQ(tags[0].at("model"), "mha");
  EXPECT_EQ(tags[0].at("details").at("quantization_level"), "float32");
  const json running = client_.Get("/api/ps").json().at("models");
  EXPECT_EQ(running.size(), 3u);
  EXPECT_EQ(running[0].at("size_vram"), 0);
  EXPECT_EQ(running[0].at("context_length"), 64);
  for (const char* const name : {"model", "name"}) {
    const json shown = client_.Post("/api/show", {{name, "mha:latest"}}).json();
    EXPECT_EQ(shown.at("capabilities"), json({"completion"}));
    EXPECT_EQ(shown.at("model_info").at("triptych.context_length"), 64);
    EXPECT_THAT(shown.at("parameters").get<std::string>(), HasSubstr("temperature 1\n"));
  }
  EXPECT_NE(client_.Get("/api/version").json().at("version"), "");
}

TEST(OllamaTimeTest, IsUtc) { EXPECT_EQ(UtcTime(951782400), "2000-02-29T00:00:00Z"); }

}  // namespace
}  // namespace triptych::server::ollama_test
