// Tests of /v1/chat/completions: equal to a completion of the rendered conversation, in OpenAI's
// schema.
#include "server/http/chat_completions.h"

#include <fstream>
#include <iterator>
#include <map>
#include <memory>

#include "tests/server/http/http_client.h"
#include "tests/server/test_server.h"

namespace triptych::server::chat_completions_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr const char* kPath = "/v1/chat/completions";

TestServerOptions Chatting(const ChatTemplateText& form = *BuiltInTemplate("plain")) {
  TestServerOptions options = WithHttp();
  options.chat_template = form;
  return options;
}

json Message(const std::string& role, const json& content) {
  return {{"role", role}, {"content", content}};
}

json Ask(const std::string& model, const std::string& text, int max_tokens) {
  return {{"model", model},
          {"messages", json::array({Message("user", text)})},
          {"max_tokens", max_tokens},
          {"temperature", 0}};
}

// The equivalent completion request, with text after the begin token.
json AsCompletion(const json& chat, const std::string& prompt) {
  json request = chat;
  request.erase("messages");
  request["prompt"] = prompt;
  request["stop"] = "\n\n";
  return request;
}

TEST(ChatCompletionsTest, AreCompletionsOfTheRenderedConversation) {
  const TestServer server(Chatting());
  HttpClient client(server.http_address());
  for (const std::string model : {"mha", "gqa", "mla"}) {
    SCOPED_TRACE(model);
    const json request = Ask(model, "To be", 12);
    const json text =
        client.Post("/v1/completions", AsCompletion(request, "User:\nTo be\n\nAssistant:\n"))
            .json();
    const HttpAnswer answer = client.Post(kPath, request);
    ASSERT_EQ(answer.status, 200) << answer.body;
    const json chat = answer.json();
    EXPECT_EQ(chat.at("id"), "chatcmpl-" + answer.headers.at("x-request-id"));
    EXPECT_EQ(chat.at("object"), "chat.completion");
    EXPECT_EQ(chat.at("model"), model);
    EXPECT_TRUE(chat.at("created").is_number_integer());
    ASSERT_THAT(chat.at("choices"), SizeIs(1));
    EXPECT_EQ(chat.at("choices")[0],
              json({{"index", 0},
                    {"message",
                     {{"role", "assistant"},
                      {"content", text.at("choices")[0].at("text")},
                      {"refusal", nullptr}}},
                    {"logprobs", nullptr},
                    {"finish_reason", text.at("choices")[0].at("finish_reason")}}));
    EXPECT_EQ(chat.at("usage").at("prompt_tokens"), text.at("usage").at("prompt_tokens"));
    EXPECT_EQ(chat.at("usage").at("completion_tokens"), text.at("usage").at("completion_tokens"));
    EXPECT_EQ(chat.at("usage").at("kv_cache").at("used_bytes"),
              text.at("usage").at("kv_cache").at("used_bytes"));
    EXPECT_TRUE(chat.at("usage").at("prompt_tokens_details").at("cached_tokens").is_number());
  }
}

TEST(ChatCompletionsTest, AStreamIsTheSame) {
  const TestServer server(Chatting());
  HttpClient client(server.http_address());
  json request = Ask("mla", "To be", 12);
  request["n"] = 2;
  request["temperature"] = 1;
  request["seed"] = 5;
  request["logprobs"] = true;
  request["top_logprobs"] = 2;
  const json whole = client.Post(kPath, request).json();
  request["stream"] = true;
  for (const bool include_usage : {false, true}) {
    if (include_usage) request["stream_options"] = {{"include_usage", true}};
    client.Send("POST", kPath, request.dump());
    HttpClient::Events events(client);
    EXPECT_EQ(events.header("Content-Type"), "text/event-stream");
    std::vector<json> all = events.All();
    if (include_usage) {
      EXPECT_THAT(all.back().at("choices"), SizeIs(0));
      EXPECT_EQ(all.back().at("object"), "chat.completion.chunk");
      EXPECT_EQ(all.back().at("usage").at("completion_tokens"),
                whole.at("usage").at("completion_tokens"));
      EXPECT_GT(all.back().at("usage").at("kv_cache").at("used_bytes"), 0);
      all.pop_back();
    }
    json choices = json::array({json(), json()});
    std::map<int, int> roles;
    for (const json& event : all) {
      EXPECT_EQ(event.at("id"), "chatcmpl-" + events.header("x-request-id"));
      EXPECT_EQ(event.at("object"), "chat.completion.chunk");
      EXPECT_EQ(event.contains("usage"), include_usage);
      const json& news = event.at("choices")[0];
      const int index = news.at("index");
      json& choice = choices[index];
      const json& delta = news.at("delta");
      if (choice.is_null()) {
        EXPECT_EQ(delta.at("role"), "assistant");
        choice = {{"index", index},
                  {"message", {{"role", "assistant"}, {"content", ""}, {"refusal", nullptr}}},
                  {"logprobs", {{"content", json::array()}, {"refusal", nullptr}}},
                  {"finish_reason", nullptr}};
      }
      roles[index] += static_cast<int>(delta.count("role"));
      std::string& content = choice.at("message").at("content").get_ref<std::string&>();
      content += delta.value("content", "");
      for (const json& token : news.at("logprobs").at("content")) {
        choice.at("logprobs").at("content").push_back(token);
      }
      EXPECT_EQ(choice.at("finish_reason"), nullptr);
      choice.at("finish_reason") = news.at("finish_reason");
    }
    EXPECT_EQ(choices, whole.at("choices"));
    EXPECT_THAT(roles, ElementsAre(std::pair(0, 1), std::pair(1, 1)));
  }
}

TEST(ChatCompletionsTest, ContentIsTextOrItsParts) {
  const TestServer server(Chatting());
  HttpClient client(server.http_address());
  const auto reply = [&](const json& messages) {
    json request = Ask("mha", "", 8);
    request["messages"] = messages;
    const HttpAnswer answer = client.Post(kPath, request);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json().at("choices")[0].at("message").at("content");
  };
  const json text = {{"type", "text"}, {"text", "b"}};
  EXPECT_EQ(reply({Message("system", "a"), Message("user", "b\nb")}),
            reply({Message("developer", json::array({{{"type", "text"}, {"text", "a"}}})),
                   Message("user", json::array({text, text}))}));
  // An answer can be sent back unchanged.
  EXPECT_EQ(reply({Message("user", "a"),
                   {{"role", "assistant"}, {"content", "b"}, {"refusal", nullptr}},
                   Message("user", "c")}),
            reply({Message("user", "a"), Message("assistant", "b"), Message("user", "c")}));
}

TEST(ChatCompletionsTest, AReplyEndsWhereItsTurnDoes) {
  const TestServer server(Chatting());
  HttpClient client(server.http_address());
  json request = Ask("mha", "ab", 20);
  request["logit_bias"] = {{"10", 500}};  // newlines and nothing else
  const json chat = client.Post(kPath, request).json();
  EXPECT_EQ(chat.at("choices")[0].at("message").at("content"), "");
  EXPECT_EQ(chat.at("choices")[0].at("finish_reason"), "stop");
  EXPECT_EQ(chat.at("usage").at("completion_tokens"), 2);
  // In addition to the client's stop strings, whose limit does not shrink.
  std::vector<std::string> stops(128, "nothing");
  request["stop"] = stops;
  EXPECT_EQ(client.Post(kPath, request).json().at("usage").at("completion_tokens"), 2);
  stops.emplace_back("nothing");
  request["stop"] = stops;
  EXPECT_EQ(client.Post(kPath, request).error("param"), "stop");
  request["stop"] = "\n";
  EXPECT_EQ(client.Post(kPath, request).json().at("usage").at("completion_tokens"), 1);
}

TEST(ChatCompletionsTest, WithoutALengthTheyMayFillTheContext) {
  const TestServer server(Chatting());
  HttpClient client(server.http_address());
  json request = Ask("mha", "a", 1);
  request.erase("max_tokens");
  request["logit_bias"] = {{"120", 500}};  // x and nothing else
  const json chat = client.Post(kPath, request).json();
  EXPECT_EQ(chat.at("usage").at("total_tokens"), 64);
  EXPECT_EQ(chat.at("choices")[0].at("finish_reason"), "length");
  for (const char* const name : {"max_tokens", "max_completion_tokens"}) {
    json bounded = request;
    bounded[name] = 3;
    EXPECT_EQ(client.Post(kPath, bounded).json().at("choices")[0].at("message").at("content"),
              "xxx");
  }
}

TEST(ChatCompletionsTest, Logprobs) {
  const TestServer server(Chatting());
  HttpClient client(server.http_address());
  json request = Ask("mha", "ab", 4);
  json completion = AsCompletion(request, "User:\nab\n\nAssistant:\n");
  completion["logprobs"] = 3;
  const json expected =
      client.Post("/v1/completions", completion).json().at("choices")[0].at("logprobs");
  request["logprobs"] = true;
  for (const int top : {0, 3}) {
    request["top_logprobs"] = top;
    const json logprobs = client.Post(kPath, request).json().at("choices")[0].at("logprobs");
    EXPECT_EQ(logprobs.at("refusal"), nullptr);
    const json& tokens = logprobs.at("content");
    ASSERT_EQ(tokens.size(), expected.at("tokens").size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      EXPECT_EQ(tokens[i].at("token"), expected.at("tokens")[i]);
      EXPECT_EQ(tokens[i].at("logprob"), expected.at("token_logprobs")[i]);
      EXPECT_THAT(tokens[i].at("top_logprobs"), SizeIs(top));
      for (const json& other : tokens[i].at("top_logprobs")) {
        EXPECT_EQ(other.at("logprob"),
                  expected.at("top_logprobs")[i].at(other.at("token").get<std::string>()));
      }
    }
  }
  // The bytes of a token need not be valid text.
  request["logit_bias"] = {{"195", 500}};
  request["max_tokens"] = 1;
  json token = client.Post(kPath, request).json().at("choices")[0].at("logprobs").at("content")[0];
  EXPECT_EQ(token.at("token"), "bytes:\\xc3");
  EXPECT_EQ(token.at("bytes"), json({195}));
}

TEST(ChatCompletionsTest, SamplingIsTheirs) {
  const TestServer server(Chatting());
  HttpClient client(server.http_address());
  json request = Ask("mha", "ab", 8);
  const auto content = [&] {
    return client.Post(kPath, request).json().at("choices")[0].at("message").at("content");
  };
  request["logit_bias"] = {{"120", 500}, {"121", 490}};
  request["presence_penalty"] = 20;
  EXPECT_EQ(content(), "xyxxxxxx");
  request.erase("presence_penalty");
  request["frequency_penalty"] = 6;
  EXPECT_EQ(content(), "xxyxyxyx");
  request = Ask("mha", "ab", 8);
  request["temperature"] = 2;
  request["seed"] = 7;
  const json seeded = content();
  EXPECT_EQ(content(), seeded);
  request["seed"] = 8;
  EXPECT_NE(content(), seeded);
  request["top_p"] = 1e-6;
  const json likeliest = content();
  request["temperature"] = 0;
  EXPECT_EQ(content(), likeliest);
}

struct BadRequest {
  const char* members;
  const char* param;
  const char* message;
};

TEST(ChatCompletionsTest, ErrorsNameTheField) {
  const TestServer server(Chatting(*BuiltInTemplate("mistral")));
  HttpClient client(server.http_address());
  const std::string user = R"({"role": "user", "content": "a"})";
  for (const BadRequest& bad : std::vector<BadRequest>{
           {R"()", "messages", "is missing; allowed: an array"},
           {R"("messages": null)", "messages", "is missing"},
           {R"("messages": "a")", "messages", R"(is "a"; allowed: an array of messages)"},
           {R"("messages": [])", "messages", "is []; allowed: an array of messages, at least one"},
           {R"("messages": [3])", "messages[0]", "is 3; allowed: an object"},
           {R"("messages": [{"content": "a"}])", "messages[0].role", "is missing; allowed: \"sys"},
           {R"("messages": [{"role": "robot", "content": "a"}])", "messages[0].role",
            R"(is "robot"; allowed: "system", "developer", "user", "assistant", "tool")"},
           {R"("messages": [{"role": 3, "content": "a"}])", "messages[0].role", "is 3; allowed"},
           {R"("messages": [{"role": "user"}])", "messages[0].content", "is missing; allowed: a s"},
           {R"("messages": [{"role": "user", "content": null}])", "messages[0].content",
            "is missing"},
           {R"("messages": [{"role": "user", "content": 3}])", "messages[0].content",
            "is 3; allowed: a string, or an array of text parts"},
           {R"("messages": [{"role": "user", "content": []}])", "messages[0].content", "is []"},
           {R"("messages": [{"role": "user", "content": ["a"]}])", "messages[0].content[0]",
            R"(is "a"; allowed: an object)"},
           {R"("messages": [{"role": "user", "content": [{"text": "a"}]}])",
            "messages[0].content[0].type", "is missing; allowed: \"text\""},
           {R"("messages": [{"role": "user", "content": [{"type": "text", "text": "a"},)"
            R"({"type": "image_url", "image_url": {"url": "x"}}]}])",
            "messages[0].content[1].type", R"(is "image_url"; allowed: "text")"},
           {R"("messages": [{"role": "user", "content": [{"type": "input_audio"}]}])",
            "messages[0].content[0].type", R"(is "input_audio"; allowed: "text")"},
           {R"("messages": [{"role": "user", "content": [{"type": "text"}]}])",
            "messages[0].content[0].text", "is missing; allowed: a string"},
           {R"("messages": [{"role": "user", "content": [{"type": "text", "text": 3}]}])",
            "messages[0].content[0].text", "is 3; allowed: a string"},
           {R"("messages": [{"role": "user", "content": "a", "tool_calls": [{}]}])",
            "messages[0].tool_calls", "is not supported"},
           {R"("messages": [{"role": "user", "content": "a", "type": "function_call"}])",
            "messages[0].type", R"(is "function_call"; allowed: "message")"},
           // Rejected by the template.
           {R"("messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "a"}])",
            "messages", "are refused by the chat template: A system message is not the first one"},
           {R"("messages": [USER], "chat_template_kwargs": 3)", "chat_template_kwargs",
            "is 3; allowed: an object"},
           {R"("messages": [USER], "chat_template_kwargs": {"tools": []})",
            "chat_template_kwargs.tools", "is set; allowed: variables that"},
           {R"("messages": [USER], "continue_final_message": true)", "messages[0].role",
            R"(is not "assistant"; allowed with continue_final_message)"},
           {R"("messages": [{"role": "user", "content": "a", "reasoning_content": "b"}])",
            "messages[0].reasoning_content", "is not a known field"},
           {R"("messages": [USER], "tools": [{"type": "function"}])", "tools[0].function",
            "is missing"},
           {R"("messages": [USER], "tool_choice": "required")", "tool_choice", "allowed: \"none\""},
           {R"("messages": [USER], "functions": [{}])", "functions", "is not supported"},
           {R"("messages": [USER], "modalities": ["text", "audio"])", "modalities",
            "is not supported"},
           {R"("messages": [USER], "audio": {"voice": "x"})", "audio", "is not supported"},
           {R"("messages": [USER], "prompt": "a")", "prompt", "is not a known field"},
           {R"("messages": [USER], "echo": true)", "echo", "is not supported"},
           {R"("messages": [USER], "logprobs": 3)", "logprobs", "is 3; allowed: true, false"},
           {R"("messages": [USER], "logprobs": true, "top_logprobs": 21)", "top_logprobs",
            "top_logprobs is 21; allowed: 0 to 20"},
           {R"("messages": [USER], "logprobs": true, "top_logprobs": -1)", "top_logprobs", "is -1"},
           {R"("messages": [USER], "top_logprobs": 1)", "top_logprobs", "only with logprobs"},
           {R"("messages": [USER], "max_tokens": 0)", "max_tokens", "is 0; allowed: 1"},
           {R"("messages": [USER], "max_completion_tokens": 0)", "max_completion_tokens", "is 0"},
           {R"("messages": [USER], "max_tokens": 1, "max_completion_tokens": 2)",
            "max_completion_tokens", "but max_tokens is 1"},
           {R"("messages": [USER], "temperature": -1)", "temperature", "is -1; allowed: 0 to 100"},
           {R"("messages": [USER], "n": 17)", "n", "is 17; allowed: 1 to 16"},
           {R"("messages": [USER], "stop": [""])", "stop[0]", "is 0 bytes long"},
           {R"("messages": [USER], "logit_bias": {"999": 1})", "logit_bias[999]", "no token"},
           {R"("messages": [USER], "stream_options": {})", "stream_options", "only with stream"},
           {R"("messages": [USER], "speculative.n_max": -1)", "speculative.n_max",
            "is -1; allowed: 0 to"},
           {R"("messages": [USER], "prediction": "a")", "prediction", "allowed: an object"},
           {R"("messages": [USER], "prediction": {"type": "model", "content": "a"})",
            "prediction.type", "allowed: \"content\""},
           {R"("messages": [USER], "prediction": {"type": "content"})", "prediction.content",
            "is missing"},
           {R"("messages": [USER], "prediction": {"content": 3})", "prediction.content",
            "is 3; allowed: a string"},
           {R"("messages": [USER], "prediction": {"content": [{"type": "text"}]})",
            "prediction.content[0]", "allowed: a part with a text"},
       }) {
    std::string members = bad.members;
    if (const size_t at = members.find("USER"); at != members.npos) members.replace(at, 4, user);
    SCOPED_TRACE(members);
    const std::string body =
        R"({"model": "mha")" + std::string(members.empty() ? "" : ", ") + members + "}";
    const HttpAnswer answer = client.Ask("POST", kPath, body, {});
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_EQ(answer.error("param"), bad.param);
    EXPECT_EQ(answer.error("type"), "invalid_request_error");
    EXPECT_THAT(answer.message(), AllOf(testing::StartsWith(bad.param), HasSubstr(bad.message)));
  }
  EXPECT_EQ(client.Post(kPath, Ask("mha", std::string(64, 'a'), 1)).error("param"), "messages");
  const HttpAnswer unknown = client.Post(kPath, Ask("nobody", "a", 1));
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.error("code"), "model_not_found");
  EXPECT_EQ(unknown.error("param"), "model");
}

TEST(ChatCompletionsTest, TheMostNewTokensAreTheModelsDefault) {
  TestServerOptions options = Chatting();
  options.models = {OwnDefaultsModel(R"({"do_sample": false, "max_new_tokens": 5})")};
  const TestServer server(options);
  HttpClient client(server.http_address());
  json request = Ask("own", "a", 7);
  request["logit_bias"] = {{"120", 500}};  // x and nothing else
  const auto tokens = [&] {
    return client.Post(kPath, request).json().at("usage").at("completion_tokens");
  };
  EXPECT_EQ(tokens(), 7);
  request.erase("max_tokens");
  EXPECT_EQ(tokens(), 5);
}

TEST(ChatCompletionsTest, APredictionChangesNoReply) {
  TestServerOptions options = Chatting();
  options.speculation = serving::Speculation::kAlways;
  const TestServer server(options);
  HttpClient client(server.http_address());
  json request = Ask("mha", "To be", 24);
  request["allowed_token_ids"] = std::vector<int>{'a', 'b', 'c', 'd', 'e', 'f', ' '};
  request["speculative.n_max"] = 0;
  const json plain = client.Post(kPath, request).json();
  const json none = {{"accepted_prediction_tokens", 0}, {"rejected_prediction_tokens", 0}};
  EXPECT_EQ(plain.at("usage").at("completion_tokens_details"), none);
  request.erase("speculative.n_max");
  const std::string reply = plain.at("choices")[0].at("message").at("content");
  for (const json& content : {json(reply), json::array({{{"type", "text"}, {"text", reply}}})}) {
    request["prediction"] = {{"type", "content"}, {"content", content}};
    const json predicted = client.Post(kPath, request).json();
    EXPECT_EQ(predicted.at("choices"), plain.at("choices"));
    const json& details = predicted.at("usage").at("completion_tokens_details");
    EXPECT_GT(details.at("accepted_prediction_tokens"), 10);
  }
}

TEST(ChatCompletionsTest, NullCountsAsAbsent) {
  const TestServer server(Chatting());
  HttpClient client(server.http_address());
  json request = Ask("mha", "a", 2);
  const json expected = client.Post(kPath, request).json().at("choices");
  for (const char* const name :
       {"tools", "tool_choice", "response_format", "audio", "modalities", "logprobs",
        "top_logprobs", "stop", "n", "seed", "stream", "stream_options", "max_completion_tokens",
        "logit_bias", "presence_penalty", "top_p", "reasoning_effort"}) {
    request[name] = nullptr;
  }
  for (const auto& [name, harmless] :
       std::map<std::string, json>{{"tools", json::array()},
                                   {"tool_choice", "none"},
                                   {"response_format", {{"type", "text"}}},
                                   {"modalities", {"text"}},
                                   {"logprobs", false},
                                   {"top_logprobs", 0},
                                   {"user", "somebody"}}) {
    EXPECT_EQ(client.Post(kPath, request).json().at("choices"), expected) << request;
    request[name] = harmless;
  }
  EXPECT_EQ(client.Post(kPath, request).json().at("choices"), expected) << request;
}

TEST(ChatCompletionsTest, AModelWithoutATemplateSaysWhatToDo) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  const HttpAnswer answer = client.Post(kPath, Ask("mha", "a", 1));
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.error("param"), "model");
  EXPECT_THAT(answer.message(), AllOf(HasSubstr("mha, which has no chat template"),
                                      HasSubstr("--chat-template FILE or NAME"),
                                      HasSubstr("chatml, llama2, llama3, mistral, plain, zephyr")));
}

TEST(ChatCompletionsTest, AModelsTemplateIsThatOfItsOptionsItsOwnOrTheServers) {
  // The shipped models' template.
  std::ifstream file(TRIPTYCH_MODELS_DIR "/shakespeare-mla/chat_template.jinja");
  const std::string plain(std::istreambuf_iterator<char>(file), {});
  const ModelConfig config = OneOfEachKind()[0].config;
  TestServerOptions options = Chatting(*BuiltInTemplate("zephyr"));
  options.models = {
      {.name = "named",
       .config = config,
       .chat_template = *BuiltInTemplate("chatml"),
       .own_chat_template = plain},
      {.name = "own", .config = config, .own_chat_template = plain},
      {.name = "unknown", .config = config, .own_chat_template = plain + "{{ 1 | nope }}"},
      {.name = "without", .config = config}};
  const TestServer server(options);
  HttpClient client(server.http_address());
  const auto prompt_tokens = [&](const std::string& model) -> int64_t {
    return client.Post(kPath, Ask(model, "", 1)).json().at("usage").at("prompt_tokens");
  };
  const auto length = [](const std::string& text) { return std::ssize(text); };
  EXPECT_EQ(prompt_tokens("named"),
            length("<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_EQ(prompt_tokens("own"), 1 + length("User:\n\n\nAssistant:\n"));
  for (const char* const model : {"unknown", "without"}) {
    EXPECT_EQ(prompt_tokens(model), length("<|user|>\n\n<|assistant|>\n") + 1) << model;
  }
}

TEST(ChatCompletionsTest, AnOptionChoosesAmongTheModelsOwnTemplates) {
  const ModelConfig config = OneOfEachKind()[0].config;
  const std::string with_default =
      R"({"chat_template": [{"name": "default", "template": "a"}, {"name": "rag", "template": "bb"},
                            {"name": "broken", "template": "{% include 'x' %}"}]})";
  const std::string without = R"({"chat_template": [{"name": "rag", "template": "ccc"}]})";
  TestServerOptions options = WithHttp();
  options.chat_template = *OwnTemplateChoice("own:rag");
  options.models = {{.name = "default", .config = config, .tokenizer_config = with_default},
                    {.name = "rag",
                     .config = config,
                     .chat_template = *OwnTemplateChoice("own:rag"),
                     .tokenizer_config = with_default},
                    {.name = "broken",
                     .config = config,
                     .chat_template = *OwnTemplateChoice("own:broken"),
                     .tokenizer_config = with_default},
                    {.name = "otherwise", .config = config, .tokenizer_config = without},
                    {.name = "none", .config = config}};
  const TestServer server(options);
  HttpClient client(server.http_address());
  const auto prompt_tokens = [&](const std::string& model) -> int64_t {
    return client.Post(kPath, Ask(model, "", 1)).json().at("usage").at("prompt_tokens");
  };
  EXPECT_EQ(prompt_tokens("default"), 1);
  EXPECT_EQ(prompt_tokens("rag"), 2);
  EXPECT_EQ(prompt_tokens("otherwise"), 3);
  for (const char* const model : {"broken", "none"}) {
    EXPECT_EQ(client.Post(kPath, Ask(model, "a", 1)).status, 400) << model;
  }
  const auto shown = [&](const std::string& model) {
    return client.Get("/v1/models/" + model).json();
  };
  EXPECT_EQ(shown("default").at("chat_template").at("name"), "own");
  EXPECT_EQ(shown("rag").at("chat_template").at("name"), "own:rag");
  EXPECT_EQ(shown("rag").at("own_chat_templates"), json({"broken", "default", "rag"}));
  EXPECT_EQ(shown("otherwise").at("chat_template").at("name"), "own:rag");
  EXPECT_EQ(shown("otherwise").at("own_chat_templates"), json({"rag"}));
  EXPECT_EQ(shown("none").at("chat_template"), nullptr);
  EXPECT_EQ(shown("none").at("own_chat_templates"), json::array());
}

TEST(ChatCompletionsTest, ATemplateThatTheModelLacksIsRefusedAtStart) {
  TestServerOptions options = WithHttp();
  options.models = {{.name = "m",
                     .config = OneOfEachKind()[0].config,
                     .chat_template = *OwnTemplateChoice("own:tool_use"),
                     .own_chat_template = "a"}};
  EXPECT_THAT(
      [&] { const TestServer server(options); },
      ::testing::ThrowsMessage<std::exception>(
          "model m: chat-template is \"own:tool_use\"; the checkpoint's templates: default"));
}

// A template that thinks, and shows the server's variables.
constexpr const char* kThinking =
    "{% for m in messages %}{{ m.role }}:{{ m.reasoning_content }}|{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}{{ '<think>' if enable_thinking else '</think>' }}{% endif %}";

TEST(ChatCompletionsTest, VariablesAndThoughtsReachTheTemplate) {
  TestServerOptions options = WithHttp();
  options.models = {
      {.name = "own", .config = OneOfEachKind()[0].config, .own_chat_template = kThinking}};
  const TestServer server(options);
  HttpClient client(server.http_address());
  json request = Ask("own", "a", 1);
  const auto prompt_tokens = [&]() -> int64_t {
    const HttpAnswer answer = client.Post(kPath, request);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json().at("usage").at("prompt_tokens");
  };
  EXPECT_EQ(prompt_tokens(), std::ssize(std::string("user:|a;</think>")));
  request["chat_template_kwargs"] = {{"enable_thinking", true}};
  EXPECT_EQ(prompt_tokens(), std::ssize(std::string("user:|a;<think>")));
  request["add_generation_prompt"] = false;
  EXPECT_EQ(prompt_tokens(), std::ssize(std::string("user:|a;")));
  request["messages"].push_back(
      {{"role", "assistant"}, {"content", "bc "}, {"reasoning_content", "why"}});
  EXPECT_EQ(prompt_tokens(), std::ssize(std::string("user:|a;assistant:why|bc ;")));
  request["continue_final_message"] = true;
  EXPECT_EQ(prompt_tokens(), std::ssize(std::string("user:|a;assistant:why|bc ")));
}

TEST(ChatCompletionsTest, ThoughtsOfAReplyAreApart) {
  TestServerOptions options = WithHttp();
  options.models = {
      {.name = "own", .config = OneOfEachKind()[0].config, .own_chat_template = kThinking}};
  const TestServer server(options);
  HttpClient client(server.http_address());
  json request = Ask("own", "a", 6);
  request["logit_bias"] = {{"120", 500}};  // x and nothing else
  request["chat_template_kwargs"] = {{"enable_thinking", true}};
  const json message = client.Post(kPath, request).json().at("choices")[0].at("message");
  EXPECT_EQ(message.at("content"), "");
  EXPECT_EQ(message.at("reasoning_content"), "xxxxxx");
  request["stream"] = true;
  client.Send("POST", kPath, request.dump());
  HttpClient::Events events(client);
  std::string reasoning, content;
  for (const json& event : events.All()) {
    const json& delta = event.at("choices")[0].at("delta");
    reasoning += delta.value("reasoning_content", "");
    content += delta.value("content", "");
  }
  EXPECT_EQ(reasoning, "xxxxxx");
  EXPECT_EQ(content, "");
  request["stream"] = false;
  request["chat_template_kwargs"] = {{"enable_thinking", false}};
  const json plain = client.Post(kPath, request).json().at("choices")[0].at("message");
  EXPECT_EQ(plain.at("content"), "xxxxxx");
  EXPECT_FALSE(plain.contains("reasoning_content"));
}

TEST(ChatCompletionsTest, ATemplateThatCannotBeUsedRefusesOnlyChats) {
  TestServerOptions options = WithHttp();
  options.models = {{.name = "own",
                     .config = OneOfEachKind()[0].config,
                     .own_chat_template = "\n{% include 'x' %}"}};
  const TestServer server(options);
  HttpClient client(server.http_address());
  const HttpAnswer refused = client.Post(kPath, Ask("own", "a", 1));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.error("param"), "model");
  EXPECT_THAT(refused.message(), HasSubstr("line 2: the tag 'include' is not supported"));
  EXPECT_EQ(client.Post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 1}}).status, 200);
  const json model = client.Get("/v1/models/own").json().at("chat_template");
  EXPECT_EQ(model.at("name"), "own");
  EXPECT_THAT(model.at("error").get<std::string>(), HasSubstr("line 2"));
}

TEST(ChatCompletionsTest, MessagesThatWriteMarkersWriteText) {
  const TestServer server(Chatting(*BuiltInTemplate("llama2")));
  HttpClient client(server.http_address());
  const auto prompt_tokens = [&](const std::string& text) -> int64_t {
    return client.Post(kPath, Ask("mha", text, 1)).json().at("usage").at("prompt_tokens");
  };
  EXPECT_EQ(prompt_tokens("</s><s>[INST] a"), prompt_tokens("a") + 14);
}

// All tokens are the same text, of three bytes.
class OneTextTokenizer final : public Tokenizer {
 public:
  std::vector<int32_t> Encode(std::span<const TextPart>) const override {
    ++encoded;
    return {1};
  }
  int64_t max_token_bytes() const override { return 3; }
  std::string Decode(int32_t token) const override { return token == 2 ? "" : "\u20AC"; }
  std::string_view kind() const override { return "test"; }
  int32_t vocab_size() const override { return 3; }
  std::optional<int32_t> begin_token() const override { return 0; }
  std::span<const int32_t> end_tokens() const override {
    static constexpr int32_t kEnds[] = {2};
    return kEnds;
  }

  mutable int encoded = 0;
};

TEST(ChatCompletionsTest, MessagesThatAreSurelyTooLongAreNotTokenized) {
  const auto tokenizer = std::make_shared<OneTextTokenizer>();
  ModelInfo model;
  model.tokenizer = tokenizer;
  model.config.max_position_embeddings = 100;
  model.chat_template = std::make_shared<const ChatTemplate>(*BuiltInTemplate("plain"), *tokenizer,
                                                             ChatTemplate::SpecialTexts());
  // The rest of the prompt is "User:\n" and "\n\nAssistant:\n".
  constexpr size_t kFits = 99 * 3 - 6 - 13;
  const auto complete = [&](size_t bytes) {
    return ToCompletion(
        {.completion = {}, .messages = {{ChatRole::kUser, std::string(bytes, 'a')}}}, model);
  };
  EXPECT_TRUE(complete(kFits).ok());
  const int encoded = tokenizer->encoded;
  EXPECT_GT(encoded, 0);
  const Result<CompletionRequest> refused = complete(kFits + 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().Message(),
            "messages is at least 100 tokens; allowed: at most 99, as this model's maximum context "
            "length is 100 tokens, with a new token");
  EXPECT_EQ(tokenizer->encoded, encoded);
}

TEST(ChatCompletionsTest, BytesOfTokens) {
  ModelInfo model;
  model.tokenizer = std::make_shared<OneTextTokenizer>();
  CompletionRequest request;
  request.params.logprobs = 1;
  const std::vector<PromptTokens> prompts = {{.tokens = {1}}};
  ChatCompletion answer({.model = model, .request_id = "1", .prompts = prompts}, request);
  StreamChunk chunk;
  chunk.logprobs = {{.chosen = {.token = 2, .logprob = -3}, .top = {{.token = 1, .logprob = -1}}}};
  answer.Add(chunk);
  const json tokens = json::parse(answer.Whole()).at("choices")[0].at("logprobs").at("content");
  EXPECT_EQ(tokens, json::array({{{"token", "token_id:2"},
                                  {"logprob", -3.0},
                                  {"bytes", nullptr},
                                  {"top_logprobs", json::array({{{"token", "\u20AC"},
                                                                 {"logprob", -1.0},
                                                                 {"bytes", {226, 130, 172}}}})}}}));
}

}  // namespace
}  // namespace triptych::server::chat_completions_test
