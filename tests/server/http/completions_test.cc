// Tests of /v1/completions: the same text and numbers as over gRPC, in OpenAI's schema.
#include "server/http/completions.h"

#include <limits>
#include <map>
#include <memory>

#include "tests/server/http/http_client.h"
#include "tests/server/test_server.h"

namespace triptych::server::completions_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

json Ask(const std::string& model, const json& prompt, int max_tokens) {
  return {{"model", model}, {"prompt", prompt}, {"max_tokens", max_tokens}, {"temperature", 0}};
}

v1::GenerateRequest GreedyToTheEnd(const std::string& model, const std::string& text, int tokens) {
  v1::GenerateRequest request = Greedy(model, text, tokens);
  request.set_ignore_eos(false);
  return request;
}

void ExpectSame(const json& usage, const v1::Usage& expected) {
  EXPECT_EQ(usage.at("prompt_tokens"), expected.prompt_tokens());
  EXPECT_EQ(usage.at("completion_tokens"), expected.generated_tokens());
  EXPECT_EQ(usage.at("total_tokens"), expected.prompt_tokens() + expected.generated_tokens());
  EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens"), expected.cached_prompt_tokens());
  const json& cache = usage.at("kv_cache");
  EXPECT_EQ(cache.at("positions"), expected.kv_cache().positions());
  EXPECT_EQ(cache.at("bytes_per_position"), expected.kv_cache().bytes_per_position());
  EXPECT_EQ(cache.at("used_bytes"), expected.kv_cache().used_bytes());
  EXPECT_EQ(cache.at("allocated_bytes"), expected.kv_cache().allocated_bytes());
  EXPECT_EQ(cache.at("peak_allocated_bytes"), expected.kv_cache().peak_allocated_bytes());
  EXPECT_EQ(cache.at("mha_used_bytes"), expected.kv_cache().mha_used_bytes());
  EXPECT_EQ(cache.at("shared_bytes"), expected.kv_cache().shared_bytes());
  EXPECT_EQ(cache.at("own_bytes"), expected.kv_cache().own_bytes());
}

TEST(CompletionsTest, AreWhatGrpcGenerates) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  for (const std::string model : {"mha", "gqa", "mla"}) {
    SCOPED_TRACE(model);
    const auto expected = Generate(server.inference(), GreedyToTheEnd(model, "To be", 12));
    const HttpAnswer answer = client.Post("/v1/completions", Ask(model, "To be", 12));
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.headers.at("content-type"), "application/json");
    const json completion = answer.json();
    EXPECT_EQ(completion.at("id"), "cmpl-" + answer.headers.at("x-request-id"));
    EXPECT_EQ(completion.at("object"), "text_completion");
    EXPECT_EQ(completion.at("model"), model);
    EXPECT_TRUE(completion.at("created").is_number_integer());
    ASSERT_THAT(completion.at("choices"), SizeIs(1));
    const json& choice = completion.at("choices")[0];
    EXPECT_EQ(choice.at("text"), expected->text());
    EXPECT_EQ(choice.at("index"), 0);
    EXPECT_EQ(choice.at("logprobs"), nullptr);
    EXPECT_EQ(choice.at("finish_reason"),
              expected->completion().finish_reason() == v1::FINISH_REASON_STOP ? "stop" : "length");
    ExpectSame(completion.at("usage"), expected->completion().usage());
    EXPECT_GT(completion.at("usage").at("kv_cache").at("used_bytes"), 0);
  }
}

TEST(CompletionsTest, StreamIsTheSame) {
  const TestServer server(WithHttp());
  const auto expected = Generate(server.inference(), GreedyToTheEnd("mla", "To be", 12));
  HttpClient client(server.http_address());
  for (const bool include_usage : {false, true}) {
    json request = Ask("mla", "To be", 12);
    request["stream"] = true;
    if (include_usage) request["stream_options"] = {{"include_usage", true}};
    client.Send("POST", "/v1/completions", request.dump());
    HttpClient::Events events(client);
    EXPECT_EQ(events.status(), 200);
    EXPECT_EQ(events.header("Content-Type"), "text/event-stream");
    std::vector<json> all = events.All();
    if (include_usage) {
      EXPECT_THAT(all.back().at("choices"), SizeIs(0));
      ExpectSame(all.back().at("usage"), expected->completion().usage());
      all.pop_back();
    }
    std::string text;
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].at("id"), "cmpl-" + events.header("x-request-id"));
      EXPECT_EQ(all[i].at("object"), "text_completion");
      EXPECT_EQ(all[i].contains("usage"), include_usage);
      const json& choice = all[i].at("choices")[0];
      text += choice.at("text").get<std::string>();
      EXPECT_EQ(choice.at("finish_reason") != nullptr, i + 1 == all.size());
    }
    EXPECT_EQ(text, expected->text());
  }
  // The connection stays usable.
  EXPECT_EQ(client.Get("/v1/models").status, 200);
}

TEST(CompletionsTest, PromptsAreTextOrTokens) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  const auto text = [&](const json& prompt) {
    const HttpAnswer answer = client.Post("/v1/completions", Ask("mha", prompt, 8));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json().at("choices")[0].at("text").get<std::string>();
  };
  const json tokens =
      client.Post("/tokenize", {{"model", "mha"}, {"text", "ab"}}).json().at("token_ids");
  EXPECT_EQ(text(json::array({"ab"})), text("ab"));
  EXPECT_EQ(text(json::array({tokens})), text(tokens));
}

TEST(CompletionsTest, ChoicesAndSeeds) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  json request = Ask("mha", "a", 10);
  request["temperature"] = 1;
  request["seed"] = 7;
  request["n"] = 3;
  const json first = client.Post("/v1/completions", request).json();
  const json second = client.Post("/v1/completions", request).json();
  ASSERT_THAT(first.at("choices"), SizeIs(3));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(first.at("choices")[i].at("index"), i);
  EXPECT_EQ(first.at("choices"), second.at("choices"));
  EXPECT_NE(first.at("choices")[0].at("text"), first.at("choices")[1].at("text"));
  // A stream's are the same.
  request["stream"] = true;
  client.Send("POST", "/v1/completions", request.dump());
  std::map<int, std::string> texts;
  for (const json& event : HttpClient::Events(client).All()) {
    texts[event.at("choices")[0].at("index")] += event.at("choices")[0].at("text");
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(first.at("choices")[i].at("text"), texts[i]);
}

TEST(CompletionsTest, Logprobs) {
  const TestServer server(WithHttp());
  v1::GenerateRequest same = GreedyToTheEnd("mha", "ab", 6);
  same.set_logprobs(2);
  const auto expected = Generate(server.inference(), same)->logprobs();
  HttpClient client(server.http_address());
  json request = Ask("mha", "ab", 6);
  request["logprobs"] = 2;
  const json choice = client.Post("/v1/completions", request).json().at("choices")[0];
  const json& logprobs = choice.at("logprobs");
  ASSERT_EQ(logprobs.at("token_logprobs").size(), expected.size());
  EXPECT_EQ(logprobs.at("tokens").size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_FLOAT_EQ(logprobs.at("token_logprobs")[i].get<float>(), expected[i].chosen().logprob());
    EXPECT_THAT(logprobs.at("top_logprobs")[i], SizeIs(2));
  }
  EXPECT_EQ(logprobs.at("text_offset")[0], 0);
  // With echo, the prompt's come first; its first token has none if no token precedes it.
  request["echo"] = true;
  const json echoed = client.Post("/v1/completions", request).json().at("choices")[0];
  EXPECT_EQ(echoed.at("text"), "ab" + choice.at("text").get<std::string>());
  EXPECT_EQ(echoed.at("logprobs").at("tokens").size(), 2 + expected.size());
  EXPECT_EQ(echoed.at("logprobs").at("tokens")[0], "a");
  EXPECT_EQ(echoed.at("logprobs").at("text_offset")[2], 2);
  request["prompt"] = {97, 98};
  const json tokens = client.Post("/v1/completions", request).json().at("choices")[0];
  EXPECT_EQ(tokens.at("logprobs").at("tokens")[1], "b");
  EXPECT_EQ(tokens.at("logprobs").at("token_logprobs")[0], nullptr);
  EXPECT_TRUE(tokens.at("logprobs").at("token_logprobs")[1].is_number());
}

TEST(CompletionsTest, ATextsTokensAreAsAsked) {
  const TestServer server(WithHttp({.models = {SpecialTokensModel()}}));
  HttpClient client(server.http_address());
  const auto complete = [&](const json& request) {
    const HttpAnswer answer = client.Post("/v1/completions", request);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  };
  json request = Ask("special", "a<s>b", 4);
  request["logit_bias"] = {{"256", -1000}};  // the end token
  EXPECT_EQ(complete(request).at("usage").at("prompt_tokens"), 1 + 3);
  request["parse_special"] = false;
  EXPECT_EQ(complete(request).at("usage").at("prompt_tokens"), 1 + 5);
  request["parse_special"] = true;
  EXPECT_EQ(complete(request).at("usage").at("prompt_tokens"), 1 + 3);
  request["add_special_tokens"] = true;
  EXPECT_EQ(complete(request).at("usage").at("prompt_tokens"), 1 + 3);
  request["add_special_tokens"] = false;
  EXPECT_EQ(complete(request).at("usage").at("prompt_tokens"), 3);

  // The same as for its tokens: the first has no log-probability.
  request["logprobs"] = 1;
  request["echo"] = true;
  const json choice = complete(request).at("choices")[0];
  EXPECT_THAT(choice.at("text").get<std::string>(), testing::StartsWith("ab"));
  const json& logprobs = choice.at("logprobs");
  EXPECT_EQ(logprobs.at("token_logprobs")[0], nullptr);
  EXPECT_TRUE(logprobs.at("token_logprobs")[1].is_number());
  EXPECT_EQ(logprobs.at("tokens")[0], "a");
  EXPECT_EQ(logprobs.at("tokens")[1], "token_id:257");
  EXPECT_EQ(logprobs.at("text_offset")[1], 1);
  EXPECT_EQ(logprobs.at("text_offset")[2], 1);
  EXPECT_EQ(logprobs.at("text_offset")[3], 2);
  request.erase("parse_special");
  request["prompt"] = {97, 257, 98};
  EXPECT_EQ(complete(request).at("choices")[0], choice);
}

TEST(CompletionsTest, OffsetsAreOfTheTextsCharacters) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  // a, a stray continuation byte, the two bytes of é, the first byte of an incomplete character.
  json request = Ask("mha", {97, 0x80, 0xC3, 0xA9, 0xC3}, 3);
  request["logit_bias"] = {{"169", 500}};  // would complete it
  request["logprobs"] = 1;
  request["echo"] = true;
  const json choice = client.Post("/v1/completions", request).json().at("choices")[0];
  const std::string replaced = "\xEF\xBF\xBD";
  EXPECT_EQ(choice.at("text"), "a" + replaced + "é" + replaced + replaced + replaced + replaced);
  EXPECT_EQ(choice.at("logprobs").at("text_offset"), json({0, 1, 2, 2, 3, 4, 5, 6}));
  EXPECT_EQ(choice.at("logprobs").at("tokens")[1], "bytes:\\x80");
}

// All tokens are the same text.
class OneTextTokenizer final : public Tokenizer {
 public:
  std::vector<int32_t> Encode(std::span<const TextPart>) const override { return {}; }
  std::string Decode(int32_t) const override { return "a"; }
  std::string_view kind() const override { return "test"; }
  int32_t vocab_size() const override { return 3; }
  std::optional<int32_t> begin_token() const override { return 0; }
  std::span<const int32_t> end_tokens() const override {
    static constexpr int32_t kEnds[] = {0};
    return kEnds;
  }
};

TEST(CompletionsTest, TheLikeliestTokenOfATextIsShown) {
  ModelInfo model;
  model.tokenizer = std::make_shared<OneTextTokenizer>();
  CompletionRequest request;
  request.params.logprobs = 2;
  const std::vector<PromptTokens> prompts = {{.tokens = {1}}};
  TextCompletion answer({.model = model, .request_id = "1", .prompts = prompts}, request);
  StreamChunk chunk;
  chunk.logprobs = {{.chosen = {.token = 2, .logprob = -3},
                     .top = {{.token = 0, .logprob = -1}, {.token = 1, .logprob = -2}}}};
  answer.Add(chunk);
  const json logprobs = json::parse(answer.Whole()).at("choices")[0].at("logprobs");
  EXPECT_EQ(logprobs.at("top_logprobs"), json::array({{{"a", -1}}}));
  EXPECT_EQ(logprobs.at("token_logprobs"), json({-3}));
}

TEST(CompletionsTest, TheChosenTokenIsAmongTheTop) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  json request = Ask("mha", "a", 8);
  request["temperature"] = 100;
  request["seed"] = 3;
  request["logprobs"] = 1;
  const json logprobs =
      client.Post("/v1/completions", request).json().at("choices")[0].at("logprobs");
  int beside = 0;
  for (size_t i = 0; i < logprobs.at("tokens").size(); ++i) {
    const json& top = logprobs.at("top_logprobs")[i];
    EXPECT_EQ(top.at(logprobs.at("tokens")[i]), logprobs.at("token_logprobs")[i]);
    beside += top.size() == 2 ? 1 : 0;
  }
  EXPECT_GT(beside, 0);
}

TEST(CompletionsTest, AReplyThatIsTooLargeMustBeStreamed) {
  const TestServer server(WithHttp({.models = {EndlessModel()}}));
  HttpClient client(server.http_address());
  json request = Ask("endless", "a", kEndlessPositions - 10);
  request["logit_bias"] = {{"257", -1000}};
  request["logprobs"] = 20;
  const HttpAnswer answer = client.Post("/v1/completions", request);
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.error("param"), "stream");
  EXPECT_TRUE(server.WaitForStats("endless", [](const v1::KvCacheStats& stats) {
    return stats.running_sequences() == 0 && stats.requests().cancelled() == 1;
  }));
}

TEST(CompletionsTest, SeedsAreSigned) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  json request = Ask("mha", "a", 10);
  request["temperature"] = 1;
  request["seed"] = -1;
  v1::GenerateRequest same = GreedyToTheEnd("mha", "a", 10);
  same.mutable_sampling()->set_temperature(1);
  same.mutable_sampling()->set_seed(std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(client.Post("/v1/completions", request).json().at("choices")[0].at("text"),
            Generate(server.inference(), same)->text());
}

TEST(CompletionsTest, StopAndBiasAndPenalties) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  json request = Ask("mha", "ab", 8);
  request["logit_bias"] = {{"120", 500}};  // x and nothing else
  EXPECT_EQ(client.Post("/v1/completions", request).json().at("choices")[0].at("text"), "xxxxxxxx");
  request["stop"] = "xxx";
  const json stopped = client.Post("/v1/completions", request).json();
  EXPECT_EQ(stopped.at("choices")[0].at("text"), "");
  EXPECT_EQ(stopped.at("choices")[0].at("finish_reason"), "stop");
  request["stop"] = json::array({"nothing", "xxxx"});
  EXPECT_EQ(client.Post("/v1/completions", request).json().at("usage").at("completion_tokens"), 4);
  request.erase("stop");
  request["logit_bias"] = {{"120", 500}, {"121", 490}};
  request["presence_penalty"] = 20;
  EXPECT_EQ(client.Post("/v1/completions", request).json().at("choices")[0].at("text"), "xyxxxxxx");
}

TEST(CompletionsTest, DefaultsAreOpenAis) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  json request = {{"model", "mha"},     {"prompt", "a"},   {"logit_bias", {{"257", -1000}}},
                  {"user", "somebody"}, {"stop", nullptr}, {"best_of", 1}};
  EXPECT_EQ(client.Post("/v1/completions", request).json().at("usage").at("completion_tokens"), 16);
  request["max_completion_tokens"] = 3;
  EXPECT_EQ(client.Post("/v1/completions", request).json().at("usage").at("completion_tokens"), 3);
}

TEST(CompletionsTest, AbsentFieldsHaveTheModelsDefaults) {
  const TestModel with_defaults = OwnDefaultsModel(
      R"({"temperature": 50, "top_k": 1, "repetition_penalty": 2, "max_new_tokens": 3})");
  const TestServer server(WithHttp({.models = {OneOfEachKind()[0], with_defaults}}));
  HttpClient client(server.http_address());
  const auto text = [&](json request, const json& members) {
    request.update(members);
    return client.Post("/v1/completions", request).json().at("choices")[0].at("text");
  };
  const json own = {{"model", "own"}, {"prompt", "To be"}, {"seed", 4}};
  const json none = json::object();
  json other = own;
  other["model"] = "mha";
  EXPECT_NE(text(own, none), text(other, none));
  EXPECT_EQ(text(own, none), text(other, {{"temperature", 0}, {"repetition_penalty", 2}}));
  const json spoken = {{"temperature", 1},        {"top_k", 0},      {"top_p", 1}, {"min_p", 0},
                       {"repetition_penalty", 1}, {"max_tokens", 20}};
  EXPECT_EQ(text(own, spoken), text(other, {{"max_tokens", 20}}));
  EXPECT_EQ(text(other, {{"min_p", 1}}), text(other, {{"temperature", 0}}));
}

struct BadRequest {
  const char* request;
  const char* param;
  const char* message;
};

TEST(CompletionsTest, ErrorsNameTheField) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  for (const BadRequest& bad : std::vector<BadRequest>{
           {R"({"prompt": "a"})", "model", "model is empty"},
           {R"({"model": "mha"})", "prompt", "prompt is missing"},
           {R"({"model": 3, "prompt": "a"})", "model", "model is 3; allowed: a string"},
           {R"({"model": "mha", "prompt": 3})", "prompt", "prompt is 3; allowed: "},
           {R"({"model": "mha", "prompt": []})", "prompt", "is empty"},
           {R"({"model": "mha", "prompt": ["a", 3]})", "prompt[1]", "is 3; allowed: a string"},
           {R"({"model": "mha", "prompt": ["a", [1, "b"]]})", "prompt[1][1]", R"(is "b"; allowed)"},
           {R"({"model": "mha", "prompt": [[1], [2, 999]]})", "prompt[1][1]", "is 999; allowed: 0"},
           {R"({"model": "mha", "prompt": ["a", []]})", "prompt[1]", "is empty; allowed: at least"},
           {R"({"model": "mha", "prompt": [1, "b"]})", "prompt[1]", R"(is "b"; allowed: a token)"},
           {R"({"model": "mha", "prompt": [1, 999]})", "prompt[1]", "is 999; allowed: 0 to 257"},
           {R"({"model": "mha", "prompt": "a", "max_tokens": "x"})", "max_tokens",
            R"(max_tokens is "x"; allowed: an integer)"},
           {R"({"model": "mha", "prompt": "a", "max_tokens": 1.5})", "max_tokens", "is 1.5"},
           {R"({"model": "mha", "prompt": "a", "max_tokens": 0})", "max_tokens", "is 0; allowed"},
           {R"({"model": "mha", "prompt": "a", "max_completion_tokens": 0})",
            "max_completion_tokens", "is 0; allowed"},
           {R"({"model": "mha", "prompt": "a", "max_tokens": 1, "max_completion_tokens": 2})",
            "max_completion_tokens", "is 2, but max_tokens is 1; allowed: one of them"},
           {R"({"model": "mha", "prompt": "a", "top_p": 2})", "top_p", "top_p is 2; allowed: "},
           {R"({"model": "mha", "prompt": "a", "temperature": 1e300})", "temperature", "is inf"},
           {R"({"model": "mha", "prompt": "a", "top_k": -2})", "top_k", "top_k is -2; allowed: 0"},
           {R"({"model": "mha", "prompt": "a", "top_k": 1.5})", "top_k", "is 1.5; allowed: an int"},
           {R"({"model": "mha", "prompt": "a", "min_p": 2})", "min_p", "min_p is 2; allowed: 0"},
           {R"({"model": "mha", "prompt": "a", "repetition_penalty": 0})", "repetition_penalty",
            "is 0; allowed: above 0"},
           {R"({"model": "mha", "prompt": "a", "n": 5000000000})", "n", "of 32 bits"},
           {R"({"model": "mha", "prompt": "a", "n": 17})", "n", "n is 17; allowed: 1 to 16"},
           {R"({"model": "mha", "prompt": "a", "seed": 9223372036854775808})", "seed",
            "seed is 9223372036854775808; allowed: an integer of 64 bits"},
           {R"({"model": "mha", "prompt": "a", "max_tokens": 18446744073709551615})", "max_tokens",
            "is 18446744073709551615; allowed: an integer of 64 bits"},
           {R"({"model": "mha", "prompt": "a", "stop": [1]})", "stop[0]", "is 1; allowed: a str"},
           {R"({"model": "mha", "prompt": "a", "stop": [""]})", "stop[0]", "is 0 bytes long"},
           {R"({"model": "mha", "prompt": "a", "logprobs": 21})", "logprobs", "is 21"},
           {R"({"model": "mha", "prompt": "a", "logit_bias": {"x": 1}})", "logit_bias[x]",
            "names no token"},
           {R"({"model": "mha", "prompt": "a", "logit_bias": {"7": 1, "07": 1}})", "logit_bias[7]",
            "is repeated"},
           {R"({"model": "mha", "prompt": "a", "logit_bias": {"999": 1}})", "logit_bias[999]",
            "names no token"},
           {R"({"model": "mha", "prompt": "a", "logit_bias": {"1": "x"}})", "logit_bias[1]",
            "a number"},
           {R"({"model": "mha", "prompt": "a", "stream": "yes"})", "stream", "true, false"},
           {R"({"model": "mha", "prompt": "a", "stream_options": {}})", "stream_options",
            "only with stream"},
           {R"({"model": "mha", "prompt": "a", "stream": true, "stream_options": {"x": 1}})",
            "stream_options.x", "is not a known field"},
           {R"({"model": "mha", "prompt": "a", "suffix": "b"})", "suffix", "is not supported"},
           {R"({"model": "mha", "prompt": "a", "best_of": 2})", "best_of", "allowed: 1"},
           {R"({"model": "mha", "prompt": "a", "tools": []})", "tools", "is not a known field"},
           {R"({"model": "mha", "prompt": "a", "add_special_tokens": 1})", "add_special_tokens",
            "is 1; allowed: true, false"},
           {R"({"model": "mha", "prompt": [97], "parse_special": true})", "parse_special",
            "is true; allowed: with text alone"},
           {R"({"model": "mha", "prompt": "", "add_special_tokens": false})", "prompt",
            "is no token, and no begin token is put before it"},
       }) {
    SCOPED_TRACE(bad.request);
    const HttpAnswer answer = client.Ask("POST", "/v1/completions", bad.request, {});
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_EQ(answer.error("param"), bad.param);
    EXPECT_EQ(answer.error("type"), "invalid_request_error");
    EXPECT_EQ(answer.error("code"), "invalid_field");
    EXPECT_THAT(answer.message(), AllOf(testing::StartsWith(bad.param), HasSubstr(bad.message)));
  }
  json too_long = Ask("mha", std::string(64, 'a'), 1);
  const HttpAnswer refused = client.Post("/v1/completions", too_long);
  EXPECT_EQ(refused.error("param"), "prompt");
  EXPECT_EQ(refused.error("code"), "context_length_exceeded");
  EXPECT_THAT(refused.message(), HasSubstr("this model's maximum context length is 64 tokens"));
  const HttpAnswer unknown = client.Post("/v1/completions", Ask("nobody", "a", 1));
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.error("code"), "model_not_found");
  EXPECT_EQ(unknown.error("param"), "model");
  EXPECT_EQ(unknown.error("type"), "not_found_error");
}

TEST(CompletionsTest, AClientsShareIsBounded) {
  TestServerOptions options = WithHttp({.models = {EndlessModel()}});
  options.admission.max_client_requests = 1;
  const TestServer server(options);
  json endless = Ask("endless", "a", kEndlessPositions - 10);
  endless["logit_bias"] = {{"257", -1000}};
  endless["stream"] = true;
  HttpClient busy(server.http_address());
  busy.Send("POST", "/v1/completions", endless.dump());
  HttpClient::Events events(busy);
  ASSERT_TRUE(events.Next().has_value());
  HttpClient client(server.http_address());
  const HttpAnswer refused = client.Post("/v1/completions", Ask("endless", "a", 1));
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.error("type"), "rate_limit_error");
  EXPECT_EQ(refused.error("code"), "client_limit");
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  busy.Close();
}

}  // namespace
}  // namespace triptych::server::completions_test
