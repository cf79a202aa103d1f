// Tests of the prompts and the special tokens of /v1/completions.
#include <map>
#include <string>
#include <vector>

#include "tests/server/http/http_client.h"
#include "tests/server/test_server.h"

namespace triptych::server::prompts_test {
namespace {

using nlohmann::json;
using testing::SizeIs;

json Ask(const std::string& model, const json& prompt, int max_tokens) {
  return {{"model", model}, {"prompt", prompt}, {"max_tokens", max_tokens}, {"temperature", 0}};
}

// Clients that render templates themselves end turns with the text of a special token.
TEST(PromptsTest, StopStringsMatchSpecialTokens) {
  TestServerOptions options = WithHttp({.models = {SpecialTokensModel()}});
  options.chat_template = *BuiltInTemplate("plain");
  const TestServer server(options);
  HttpClient client(server.http_address());
  json request = Ask("special", "a", 8);
  request["logit_bias"] = {{"257", 1000}};  // <s>, which does not end texts
  json chat = request;
  chat.erase("prompt");
  chat["messages"] = {{{"role", "user"}, {"content", "a"}}};
  for (const auto& [stop, tokens] : std::map<std::string, int>{{"<s>", 1}, {"s><s", 2}}) {
    request["stop"] = chat["stop"] = {stop};
    for (const auto& [path, body] : std::map<std::string, json>{{"/v1/completions", request},
                                                                {"/v1/chat/completions", chat}}) {
      const json answer = client.Post(path, body).json();
      EXPECT_EQ(answer.at("usage").at("completion_tokens"), tokens) << path << stop;
      EXPECT_EQ(answer.at("choices")[0].at("finish_reason"), "stop");
    }
  }
  v1::GenerateRequest over_grpc = Greedy("special", "a", 8);
  (*over_grpc.mutable_sampling()->mutable_logit_bias())[257] = 1000;
  over_grpc.add_stop("<s>");
  const auto stream = Generate(server.inference(), over_grpc);
  EXPECT_THAT(stream->tokens(), SizeIs(1));
  EXPECT_EQ(stream->completion().stop(), "<s>");
  EXPECT_EQ(stream->text(), "");
}

TEST(PromptsTest, SpecialTokensAreShownOnRequest) {
  const TestServer server(WithHttp({.models = {SpecialTokensModel()}}));
  HttpClient client(server.http_address());
  json request = Ask("special", "a", 2);
  request["logit_bias"] = {{"257", 1000}};
  EXPECT_EQ(client.Post("/v1/completions", request).json().at("choices")[0].at("text"), "");
  request["skip_special_tokens"] = false;
  request["logprobs"] = 0;
  const json choice = client.Post("/v1/completions", request).json().at("choices")[0];
  EXPECT_EQ(choice.at("text"), "<s><s>");
  EXPECT_EQ(choice.at("logprobs").at("text_offset"), json({0, 3}));
  request["stop"] = "<s>";
  request["include_stop_str_in_output"] = true;
  EXPECT_EQ(client.Post("/v1/completions", request).json().at("choices")[0].at("text"), "<s>");
}

TEST(PromptsTest, SpecialTokensOfPromptsAreTextIfTheServerSaysSo) {
  TestServerOptions options = WithHttp({.models = {SpecialTokensModel()}});
  options.transport.http_parse_special = false;
  const TestServer server(options);
  HttpClient client(server.http_address());
  json request = Ask("special", "a<s>b", 1);
  const auto prompt_tokens = [&] {
    return client.Post("/v1/completions", request).json().at("usage").at("prompt_tokens");
  };
  EXPECT_EQ(prompt_tokens(), 1 + 5);
  request["parse_special"] = true;
  EXPECT_EQ(prompt_tokens(), 1 + 3);
  EXPECT_THAT(client.Post("/tokenize", {{"text", "<s>"}}).json().at("token_ids"), SizeIs(3));
}

TEST(PromptsTest, SeveralPromptsAreChoicesInOrder) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  json request = Ask("mha", json::array({"ab", "c", "To be"}), 4);
  request["n"] = 2;
  const json whole = client.Post("/v1/completions", request).json();
  ASSERT_THAT(whole.at("choices"), SizeIs(6));
  json one = request;
  int64_t prompt_tokens = 0;
  for (int i = 0; i < 3; ++i) {
    one["prompt"] = request["prompt"][i];
    const json alone = client.Post("/v1/completions", one).json();
    for (int choice = 0; choice < 2; ++choice) {
      EXPECT_EQ(whole.at("choices")[2 * i + choice].at("text"),
                alone.at("choices")[choice].at("text"));
      EXPECT_EQ(whole.at("choices")[2 * i + choice].at("index"), 2 * i + choice);
    }
    prompt_tokens += alone.at("usage").at("prompt_tokens").get<int64_t>();
  }
  EXPECT_EQ(whole.at("usage").at("prompt_tokens"), prompt_tokens);
  EXPECT_EQ(whole.at("usage").at("completion_tokens"), 6 * 4);
  request["stream"] = true;
  request["stream_options"] = {{"include_usage", true}, {"continuous_usage_stats", true}};
  client.Send("POST", "/v1/completions", request.dump());
  std::map<int, std::string> texts;
  std::vector<json> events = HttpClient::Events(client).All();
  EXPECT_EQ(events.back().at("usage").at("prompt_tokens"), prompt_tokens);
  events.pop_back();
  std::map<int, json> usages;
  for (const json& event : events) {
    const int index = event.at("choices")[0].at("index");
    texts[index] += event.at("choices")[0].at("text");
    usages[index] = event.at("usage");
  }
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(texts[i], whole.at("choices")[i].at("text"));
    EXPECT_EQ(usages[i].at("completion_tokens"), 4);
  }
  EXPECT_EQ(usages[5].at("prompt_tokens"), 6);
  EXPECT_EQ(usages[5].at("total_tokens"), 10);
  // Token ids, with echo and log-probabilities.
  json scored = Ask("mha", {{97, 98, 99}, {100, 101}}, 1);
  scored.update({{"echo", true}, {"logprobs", 1}});
  const json choices = client.Post("/v1/completions", scored).json().at("choices");
  ASSERT_THAT(choices, SizeIs(2));
  EXPECT_THAT(choices[0].at("logprobs").at("token_logprobs"), SizeIs(3 + 1));
  EXPECT_THAT(choices[1].at("logprobs").at("tokens"), SizeIs(2 + 1));
  EXPECT_THAT(choices[1].at("text").get<std::string>(), testing::StartsWith("de"));
  EXPECT_EQ(choices[1].at("logprobs").at("token_logprobs")[0], nullptr);
}

TEST(PromptsTest, PromptsAndTheirChoicesAreBounded) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  json request = Ask("mha", json::array(), 1);
  for (int i = 0; i < 128; ++i) request["prompt"].push_back("a");
  EXPECT_THAT(client.Post("/v1/completions", request).json().at("choices"), SizeIs(128));
  request["n"] = 2;
  HttpAnswer answer = client.Post("/v1/completions", request);
  EXPECT_EQ(answer.error("param"), "n");
  EXPECT_EQ(answer.message(), "n is 2 for 128 prompts; allowed: at most 128 choices together");
  request["prompt"].push_back("a");
  answer = client.Post("/v1/completions", request);
  EXPECT_EQ(answer.message(), "prompt has 129 prompts; allowed: at most 128");
  // One that is refused refuses all.
  answer = client.Post("/v1/completions", Ask("mha", {"a", std::string(64, 'a')}, 1));
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.error("param"), "prompt[1]");
  EXPECT_TRUE(server.WaitForStats("mha", IsIdle));
}

TEST(PromptsTest, WithoutNewTokensThePromptIsScored) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  json request = Ask("mha", "abc", 0);
  request["echo"] = true;
  const json echoed = client.Post("/v1/completions", request).json();
  EXPECT_EQ(echoed.at("choices")[0].at("text"), "abc");
  EXPECT_EQ(echoed.at("choices")[0].at("finish_reason"), "length");
  EXPECT_EQ(echoed.at("usage").at("completion_tokens"), 0);
  request["logprobs"] = 1;
  const json scored = client.Post("/v1/completions", request).json().at("choices")[0];
  EXPECT_EQ(scored.at("text"), "abc");
  EXPECT_THAT(scored.at("logprobs").at("token_logprobs"), SizeIs(3));
}

}  // namespace
}  // namespace triptych::server::prompts_test
