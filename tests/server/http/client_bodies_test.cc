// Tests of request bodies as other programs send them: benchmarks, evaluation harnesses, editors.
#include <string>
#include <vector>

#include "tests/server/http/http_client.h"
#include "tests/server/test_server.h"

namespace triptych::server::client_bodies_test {
namespace {

using nlohmann::json;
using testing::SizeIs;

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kCompletions = "/v1/completions";

struct Sent {
  const char* by;
  const char* path;
  const char* body;
};

class ClientBodiesTest : public testing::Test {
 protected:
  static TestServerOptions Options() {
    TestServerOptions options = WithHttp();
    options.models = {OneOfEachKind()[0]};
    options.chat_template = *BuiltInTemplate("plain");
    return options;
  }

  const TestServer server_{Options()};
  HttpClient client_{server_.http_address()};
};

TEST_F(ClientBodiesTest, AreTaken) {
  for (const Sent& sent : std::vector<Sent>{
           {"GuideLLM", kChat,
            R"({"model": "mha", "messages": [{"role": "user", "content":
                [{"type": "text", "text": "hi"}]}], "max_completion_tokens": 4, "stop": null,
                "max_tokens": 4, "ignore_eos": true})"},
           {"GuideLLM", kCompletions,
            R"({"model": "mha", "prompt": "hi", "max_tokens": 4, "stop": null,
                "ignore_eos": true})"},
           {"vLLM's bench", kCompletions,
            R"({"model": "mha", "prompt": "hi", "repetition_penalty": 1.0, "max_tokens": 4,
                "logprobs": null, "temperature": 0.0, "ignore_eos": true, "min_tokens": 4,
                "stop_token_ids": [], "include_stop_str_in_output": false})"},
           {"genai-perf", kChat,
            R"({"model": "mha", "messages": [{"role": "user", "content": "hi"}],
                "max_tokens": 4, "min_tokens": 4, "ignore_eos": true})"},
           {"lm-evaluation-harness", kCompletions,
            R"({"prompt": [[97, 98, 99]], "model": "mha", "max_tokens": 1, "logprobs": 1,
                "seed": 1234, "echo": true, "temperature": 0})"},
           {"lm-evaluation-harness", kCompletions,
            R"({"prompt": ["a", "bc"], "model": "mha", "max_tokens": 4, "temperature": 0,
                "stop": ["\n\n", "</s>", "Q:"], "seed": 1234})"},
           {"lm-evaluation-harness", kChat,
            R"({"messages": [{"role": "user", "content": "hi", "type": "text"}], "model": "mha",
                "max_tokens": 4, "temperature": 0, "stop": ["</s>"], "seed": 1234})"},
           {"LangChain", kChat,
            R"({"model": "mha", "messages": [{"role": "user", "name": "bob", "content": "hi"}],
                "max_tokens": 4, "stream": false, "n": 1})"},
           {"an agent's history", kChat,
            R"({"model": "mha", "max_tokens": 4, "tools": [], "tool_choice": "auto", "messages": [
                {"role": "user", "content": [{"type": "text", "text": "hi",
                  "cache_control": {"type": "ephemeral"}}]},
                {"role": "assistant", "content": "a", "tool_calls": [], "annotations": [],
                  "refusal": null, "function_call": null},
                {"role": "user", "content": "b"}]})"},
           {"llama.cpp's clients", kCompletions,
            R"({"prompt": "hi", "max_tokens": 4, "cache_prompt": true, "mirostat": 0,
                "typical_p": 1, "top_k": -1, "top_p": 0, "dry_multiplier": 0, "tfs_z": 1.0})"},
           {"vLLM's clients", kChat,
            R"({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4,
                "skip_special_tokens": true, "spaces_between_special_tokens": true,
                "min_tokens": 0, "stop_token_ids": [], "use_beam_search": false,
                "length_penalty": 1.0, "early_stopping": false, "echo": false, "priority": 0,
                "add_special_tokens": false, "return_token_ids": false, "request_id": "1"})"},
       }) {
    SCOPED_TRACE(sent.by);
    json body = json::parse(sent.body);
    const HttpAnswer answer = client_.Post(sent.path, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}, {"continuous_usage_stats", true}};
    client_.Send("POST", sent.path, body.dump());
    HttpClient::Events events(client_);
    EXPECT_EQ(events.status(), 200);
    for (const json& event : events.All()) EXPECT_TRUE(event.at("usage").is_object());
  }
}

TEST_F(ClientBodiesTest, NamesOfVllmHaveTheirMeaning) {
  json request = {{"prompt", "a"}, {"max_tokens", 6}, {"temperature", 0}};
  request["logit_bias"] = {{"257", 1000}};  // the end token
  const auto tokens = [&] {
    return client_.Post(kCompletions, request).json().at("usage").at("completion_tokens");
  };
  EXPECT_EQ(tokens(), 1);
  request["min_tokens"] = 3;
  EXPECT_EQ(tokens(), 4);
  request["min_tokens"] = 0;
  request["ignore_eos"] = true;
  EXPECT_EQ(tokens(), 6);
  request["stop_token_ids"] = {257};
  EXPECT_EQ(tokens(), 1);
  request["allowed_token_ids"] = {120};
  EXPECT_EQ(client_.Post(kCompletions, request).json().at("choices")[0].at("text"), "xxxxxx");
}

TEST_F(ClientBodiesTest, TheLongestReplyEndsWithTheContext) {
  for (const int max_tokens : {-1, 1000}) {
    const json request = {{"prompt", "ab"}, {"max_tokens", max_tokens}, {"ignore_eos", true}};
    const json completion = client_.Post(kCompletions, request).json();
    EXPECT_EQ(completion.at("usage").at("completion_tokens"), 64 - 3) << max_tokens;
    EXPECT_EQ(completion.at("choices")[0].at("finish_reason"), "length");
  }
}

TEST_F(ClientBodiesTest, MembersThatChangeSomethingAreRefused) {
  const json hi = {{{"role", "user"}, {"content", "hi"}}};
  for (const auto& [member, value] :
       std::vector<std::pair<std::string, json>>{{"tool_choice", "required"},
                                                 {"tools", {{{"type", "function"}}}},
                                                 {"use_beam_search", true},
                                                 {"echo", true},
                                                 {"mirostat", 2},
                                                 {"typical_p", 0.5},
                                                 {"min_tokens", 17},
                                                 {"stop_token_ids", {999}}}) {
    const HttpAnswer answer =
        client_.Post(kChat, {{"messages", hi}, {"max_tokens", 4}, {member, value}});
    EXPECT_EQ(answer.status, 400) << member;
    EXPECT_TRUE(answer.error("param").get<std::string>().starts_with(member)) << answer.body;
  }
}

TEST_F(ClientBodiesTest, TokenizersOfVllmAndLlamaCpp) {
  EXPECT_EQ(client_.Post("/tokenize", {{"model", "mha"}, {"prompt", "ab"}}).json(),
            json({{"count", 3},
                  {"max_model_len", 64},
                  {"tokens", {256, 97, 98}},
                  {"token_strs", nullptr}}));
  EXPECT_EQ(client_.Post("/tokenize", {{"prompt", "ab"}, {"add_special_tokens", false}})
                .json()
                .at("tokens"),
            json({97, 98}));
  const json messages = {{{"role", "user"}, {"content", "a"}}};
  const json chat = client_.Post("/tokenize", {{"messages", messages}}).json();
  EXPECT_EQ(chat.at("count"), 1 + std::string("User:\na\n\nAssistant:\n").size());
  EXPECT_EQ(chat.at("tokens")[0], 256);
  EXPECT_EQ(client_.Post("/tokenize", {{"content", "ab"}}).json(), json({{"tokens", {97, 98}}}));
  EXPECT_EQ(client_.Post("/tokenize", {{"content", "a"}, {"add_special", true}}).json(),
            json({{"tokens", {256, 97}}}));
  EXPECT_EQ(client_.Post("/tokenize", {{"content", "aé"}, {"with_pieces", true}}).json(),
            json({{"tokens",
                   {{{"id", 97}, {"piece", "a"}},
                    {{"id", 195}, {"piece", {195}}},
                    {{"id", 169}, {"piece", {169}}}}}}));
  EXPECT_EQ(client_.Post("/detokenize", {{"tokens", {97, 98}}}).json(),
            json({{"content", "ab"}, {"prompt", "ab"}}));
  const HttpAnswer refused = client_.Post("/tokenize", {{"prompt", 3}});
  EXPECT_EQ(refused.error("param"), "prompt");
}

TEST_F(ClientBodiesTest, ModelsSayTheirContext) {
  EXPECT_EQ(client_.Get("/v1/models/mha").json().at("max_model_len"), 64);
}

}  // namespace
}  // namespace triptych::server::client_bodies_test
