// Tests of HTTP routes and their access control.
#include "server/http/routes.h"

#include <google/protobuf/util/time_util.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "server/core/access/auth_gate.h"
#include "server/http/http_server.h"
#include "server/http/page.h"
#include "tests/server/http/http_client.h"
#include "tests/server/test_server.h"
#include "tests/server/token_lines.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_dir.h"

namespace triptych::server::routes_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

TEST(RoutesTest, Models) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  const json list = client.Get("/v1/models").json();
  EXPECT_EQ(list.at("object"), "list");
  ASSERT_THAT(list.at("data"), SizeIs(3));
  EXPECT_EQ(list.at("data")[2].at("id"), "mla");
  EXPECT_EQ(list.at("data")[2].at("object"), "model");
  EXPECT_TRUE(list.at("data")[2].at("created").is_number_integer());
  EXPECT_EQ(list.at("data")[2].at("attention"), "mla");
  const v1::KvCacheStats stats = server.Stats("mla");
  EXPECT_EQ(list.at("data")[2].at("bytes_per_position"), stats.bytes_per_position());
  EXPECT_THAT(list.at("data")[2].at("kv_cache_formula").get<std::string>(),
              StartsWith(std::to_string(stats.bytes_per_position()) + " bytes a position = "));
  EXPECT_EQ(list.at("data")[2].at("kv_cache_dtype"), "float32");
  EXPECT_EQ(list.at("data")[2].at("device"), "cpu");
  EXPECT_FALSE(list.at("data")[2].contains("device_memory"));
  EXPECT_EQ(list.at("data")[2].at("tokenizer"), json({{"kind", "bytes"},
                                                      {"vocab_size", 258},
                                                      {"begin_token_id", 256},
                                                      {"end_token_ids", {257}}}));
  json one = client.Get("/v1/models/ml%61").json();
  EXPECT_EQ(one.at("tokenizer").at("special_tokens"), json::array());
  one.at("tokenizer").erase("special_tokens");
  EXPECT_EQ(one, list.at("data")[2]);
  EXPECT_EQ(client.Get("/v1/models/nobody").status, 404);
}

TEST(RoutesTest, AModelWithExpertsSaysWhatATokenUses) {
  const ModelConfig config = SmallExpertsModel(AttentionKind::kGqa);
  const TestServer server(
      WithHttp({.models = {OneOfEachKind()[0], {.name = "experts", .config = config}}}));
  HttpClient client(server.http_address());
  const json dense = client.Get("/v1/models/mha").json();
  EXPECT_FALSE(dense.contains("expert_dtype"));
  EXPECT_EQ(dense.at("active_parameters"), dense.at("parameters"));
  const json model = client.Get("/v1/models/experts").json();
  EXPECT_EQ(model.at("expert_dtype"), "float32");
  // A token does not choose 4 of 6 experts in each of 2 layers.
  EXPECT_EQ(model.at("active_parameters"),
            model.at("parameters").get<int64_t>() - 2 * 4 * 3 * 24 * 32);
  // In float32 a token reads at least every active matrix, but neither embedding nor positions.
  const int64_t unread = (258 + 64) * 24 + 5 * 24;
  EXPECT_GE(model.at("read_bytes_per_token").get<int64_t>(),
            4 * (model.at("active_parameters").get<int64_t>() - unread));
  EXPECT_LT(model.at("read_bytes_per_token").get<int64_t>(),
            4 * model.at("parameters").get<int64_t>());

  v1::GetModelRequest get;
  get.set_model("experts");
  grpc::ClientContext context;
  v1::GetModelResponse answer;
  ASSERT_TRUE(server.models().GetModel(&context, get, &answer).ok());
  EXPECT_EQ(answer.model().expert_dtype(), "float32");
  EXPECT_EQ(answer.model().active_parameters(), model.at("active_parameters"));
  EXPECT_EQ(answer.model().read_bytes_per_token(), model.at("read_bytes_per_token"));

  const std::string metrics = client.Get("/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("\ntriptych_expert_tokens_total{model=\"experts\","));
  EXPECT_THAT(metrics, Not(HasSubstr("\ntriptych_expert_tokens_total{model=\"mha\",")));
}

TEST(RoutesTest, ModelsSayWhatARequestTakesWhereItIsSilent) {
  const TestModel with_defaults =
      OwnDefaultsModel(R"({"temperature": 0.6, "top_k": 20, "top_p": 0.95, "max_new_tokens": 7})");
  const TestServer server(WithHttp({.models = {OneOfEachKind()[0], with_defaults}}));
  HttpClient client(server.http_address());
  EXPECT_EQ(client.Get("/v1/models/mha").json().at("generation_defaults"),
            json({{"max_tokens", nullptr},
                  {"temperature", 1},
                  {"top_k", 0},
                  {"top_p", 1},
                  {"min_p", 0},
                  {"repetition_penalty", 1}}));
  EXPECT_THAT(client.Get("/v1/models/own").body,
              HasSubstr(R"("generation_defaults":{"max_tokens":7,"temperature":0.6,"top_k":20,)"
                        R"("top_p":0.95,"min_p":0.0,"repetition_penalty":1.0})"));
}

TEST(RoutesTest, OneModelSaysItsSpecialTokens) {
  const TestServer server(WithHttp({.models = {SpecialTokensModel()}}));
  HttpClient client(server.http_address());
  EXPECT_FALSE(
      client.Get("/v1/models").json().at("data")[0].at("tokenizer").contains("special_tokens"));
  const json tokenizer = client.Get("/v1/models/special").json().at("tokenizer");
  EXPECT_EQ(tokenizer.at("special_tokens"),
            json::array({{{"id", 256}, {"text", "</s>"}}, {{"id", 257}, {"text", "<s>"}}}));
}

TEST(RoutesTest, ATextsTokensAreAsAsked) {
  const TestServer server(WithHttp({.models = {SpecialTokensModel()}}));
  HttpClient client(server.http_address());
  json request = {{"text", "a<s>é"}, {"parse_special", true}, {"with_pieces", true}};
  EXPECT_EQ(client.Post("/tokenize", request).json(),
            json({{"token_ids", {97, 257, 0xC3, 0xA9}},
                  {"offsets", {0, 1, 1, 2}},
                  {"pieces", {{97}, json::array(), {0xC3}, {0xA9}}}}));
  request = {{"text", "<s>"}, {"add_special_tokens", true}};
  EXPECT_EQ(client.Post("/tokenize", request).json(),
            json({{"token_ids", {257}}}));  // begins already
  request["parse_special"] = false;
  EXPECT_EQ(client.Post("/tokenize", request).json(), json({{"token_ids", {257, '<', 's', '>'}}}));
  request = {{"text", ""}, {"with_pieces", true}};
  EXPECT_EQ(
      client.Post("/tokenize", request).json(),
      json({{"token_ids", json::array()}, {"offsets", json::array()}, {"pieces", json::array()}}));
  EXPECT_EQ(client.Post("/tokenize", {{"text", "a"}, {"with_pieces", 1}}).error("param"),
            "with_pieces");
}

TEST(RoutesTest, TokensAndTextAndBack) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  const json tokens = client.Post("/tokenize", {{"model", "mha"}, {"text", "aé"}}).json();
  EXPECT_EQ(tokens, json({{"token_ids", {97, 0xC3, 0xA9}}}));
  json request = tokens;
  request["model"] = "mha";
  EXPECT_EQ(client.Post("/detokenize", request).json(), json({{"text", "aé"}}));
  const HttpAnswer no_token =
      client.Post("/detokenize", {{"model", "mha"}, {"token_ids", {1, 258}}});
  EXPECT_EQ(no_token.status, 400);
  EXPECT_EQ(no_token.error("param"), "token_ids[1]");
  EXPECT_EQ(client.Post("/tokenize", {{"model", "mha"}, {"text", 1}}).error("param"), "text");
  EXPECT_EQ(client.Post("/detokenize", {{"token_ids", "a"}}).error("param"), "token_ids");
  EXPECT_EQ(client.Post("/tokenize", {{"model", "x"}, {"text", ""}}).status, 404);
}

double Seconds(const google::protobuf::Duration& duration) {
  return static_cast<double>(google::protobuf::util::TimeUtil::DurationToNanoseconds(duration)) /
         1e9;
}

void ExpectSame(const json& stats, const v1::KvCacheStats& expected) {
  EXPECT_EQ(stats.at("model"), expected.model());
  EXPECT_EQ(stats.at("pool_bytes"), expected.pool_bytes());
  EXPECT_EQ(stats.at("used_bytes"), expected.used_bytes());
  EXPECT_EQ(stats.at("allocated_bytes"), expected.allocated_bytes());
  EXPECT_EQ(stats.at("free_bytes"), expected.free_bytes());
  EXPECT_EQ(stats.at("peak_allocated_bytes"), expected.peak_allocated_bytes());
  EXPECT_EQ(stats.at("bytes_per_position"), expected.bytes_per_position());
  EXPECT_EQ(stats.at("block_positions"), expected.block_positions());
  EXPECT_EQ(stats.at("block_bytes"), expected.block_bytes());
  EXPECT_EQ(stats.at("total_blocks"), expected.total_blocks());
  EXPECT_EQ(stats.at("free_blocks"), expected.free_blocks());
  EXPECT_EQ(stats.at("positions"), expected.positions());
  EXPECT_EQ(stats.at("mha_used_bytes"), expected.mha_used_bytes());
  EXPECT_EQ(stats.at("running_sequences"), expected.running_sequences());
  EXPECT_EQ(stats.at("waiting_sequences"), expected.waiting_sequences());
  EXPECT_EQ(stats.at("preemptions"), expected.preemptions());
  EXPECT_EQ(stats.at("shared_bytes"), expected.shared_bytes());
  EXPECT_EQ(stats.at("evictable_bytes"), expected.evictable_bytes());
  EXPECT_EQ(stats.at("evictable_blocks"), expected.evictable_blocks());
  EXPECT_EQ(stats.at("evicted_blocks"), expected.evicted_blocks());
  const json& requests = stats.at("requests");
  EXPECT_EQ(requests.at("accepted"), expected.requests().accepted());
  EXPECT_EQ(requests.at("refused"), expected.requests().refused());
  EXPECT_EQ(requests.at("finished"), expected.requests().finished());
  EXPECT_EQ(requests.at("cancelled"), expected.requests().cancelled());
  EXPECT_EQ(requests.at("failed"), expected.requests().failed());
  EXPECT_EQ(requests.at("prompt_tokens"), expected.requests().prompt_tokens());
  EXPECT_EQ(requests.at("cached_prompt_tokens"), expected.requests().cached_prompt_tokens());
  EXPECT_EQ(requests.at("generated_tokens"), expected.requests().generated_tokens());
  EXPECT_EQ(requests.at("sampled_tokens"), expected.requests().sampled_tokens());
  EXPECT_EQ(requests.at("first_tokens"), expected.requests().first_tokens());
  EXPECT_DOUBLE_EQ(requests.at("first_token_time"),
                   Seconds(expected.requests().first_token_time()));
  EXPECT_GT(stats.at("uptime"), Seconds(expected.uptime())) << "asked later";
}

TEST(RoutesTest, KvCacheIsWhatGrpcSays) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  const std::string prompt(20, 'a');  // more than a block, which stays cached
  for (int i = 0; i < 2; ++i) Generate(server.inference(), Greedy("mla", prompt, 4));
  // Until the engine has finished the steps of the delivered tokens.
  ASSERT_TRUE(server.WaitForStats("mla", [](const v1::KvCacheStats& stats) {
    return stats.running_sequences() == 0 && stats.requests().finished() == 2;
  }));
  const v1::GetKvCacheStatsResponse expected = server.Stats();
  const json stats = client.Get("/v1/kv-cache").json();
  ASSERT_THAT(stats.at("models"), SizeIs(3));
  for (int i = 0; i < 3; ++i) ExpectSame(stats.at("models")[i], expected.models(i));
  EXPECT_GT(stats.at("models")[2].at("evictable_bytes"), 0);
  EXPECT_EQ(stats.at("total_pool_bytes"), expected.total_pool_bytes());
  EXPECT_EQ(stats.at("total_used_bytes"), expected.total_used_bytes());
  EXPECT_EQ(stats.at("total_allocated_bytes"), expected.total_allocated_bytes());
  EXPECT_EQ(stats.at("total_evictable_bytes"), expected.total_evictable_bytes());
  EXPECT_EQ(stats.at("total_free_bytes"), expected.total_free_bytes());
  EXPECT_EQ(stats.at("server_version"), expected.server_version());
  EXPECT_THAT(stats.at("sequences"), SizeIs(0));
  EXPECT_EQ(client.Get("/v1/kv-cache?model=mla").json().at("models").size(), 1);
  EXPECT_EQ(client.Get("/v1/kv-cache?model=x").status, 404);
  EXPECT_EQ(client.Get("/v1/kv-cache?page_size=x").error("param"), "page_size");
  EXPECT_EQ(client.Get("/v1/kv-cache?page_size=-1").error("param"), "page_size");
  EXPECT_EQ(client.Get("/v1/kv-cache?page_token=x").error("param"), "page_token");
  EXPECT_EQ(client.Get("/v1/kv-cache?x=1").error("param"), "x");
  EXPECT_EQ(client.Get("/v1/kv-cache?model=mla&model=mha").error("param"), "model");
  EXPECT_EQ(client.Get("/v1/kv-cache?block_map=1").error("param"), "block_map");
}

TEST(RoutesTest, KvCacheListsSequences) {
  const TestServer server(WithHttp({.models = {EndlessModel()}}));
  GenerateCall running(server.inference(), Greedy("endless", "abc", kEndlessPositions - 10));
  ASSERT_TRUE(running.Read());
  HttpClient client(server.http_address());
  const json sequences = client.Get("/v1/kv-cache?page_size=5").json().at("sequences");
  ASSERT_THAT(sequences, SizeIs(1));
  EXPECT_EQ(sequences[0].at("request_id"), running.RequestId());
  EXPECT_EQ(sequences[0].at("model"), "endless");
  EXPECT_EQ(sequences[0].at("state"), "decode");
  EXPECT_EQ(sequences[0].at("prompt_tokens"), 4);
  EXPECT_EQ(sequences[0].at("client"), "127.0.0.1");
  EXPECT_GT(sequences[0].at("kv_cache").at("used_bytes"), 0);
  EXPECT_EQ(sequences[0].at("order"), 1);
}

TEST(RoutesTest, KvCacheMapsThePoolsForThoseWhoAsk) {
  const TestServer server(WithHttp({.models = {EndlessModel()}}));
  GenerateCall running(server.inference(), Greedy("endless", "abc", kEndlessPositions - 10));
  ASSERT_TRUE(running.Read());
  HttpClient client(server.http_address());
  EXPECT_FALSE(
      client.Get("/v1/kv-cache?block_map=false").json().at("models")[0].contains("block_map"));
  const json model = client.Get("/v1/kv-cache?block_map=true").json().at("models")[0];
  const json map = model.at("block_map");
  ASSERT_THAT(map.at("holders"), SizeIs(1));
  EXPECT_EQ(map.at("holders")[0].at("request_id"), running.RequestId());
  EXPECT_EQ(map.at("holders")[0].at("kv_cache").at("allocated_bytes"), model.at("allocated_bytes"));
  int64_t held = 0;
  for (size_t i = 0; i < map.at("cells").size(); ++i) {
    held += map.at("cells")[i].get<int64_t>() * map.at("allocated")[i].get<int64_t>();
    EXPECT_EQ(map.at("holder")[i], map.at("allocated")[i] > 0 ? 1 : 0);
  }
  EXPECT_EQ(held * model.at("block_bytes").get<int64_t>(), model.at("allocated_bytes"));
  for (const char* list : {"shared", "evictable"}) {
    EXPECT_EQ(map.at(list).size(), map.at("cells").size());
  }
}

TEST(RoutesTest, ThePageIsItselfAndNothingElse) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  const HttpAnswer page = client.Get("/?anything");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.body, kPageHtml);
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_EQ(page.headers.at("x-content-type-options"), "nosniff");
  EXPECT_EQ(page.headers.at("cache-control"), "no-cache");
  const std::string& policy = page.headers.at("content-security-policy");
  EXPECT_THAT(policy, testing::StartsWith("default-src 'none'; script-src 'sha256-"));
  EXPECT_THAT(policy, HasSubstr("; style-src 'sha256-"));
  EXPECT_THAT(policy, HasSubstr("; frame-ancestors 'none'"));
  EXPECT_THAT(policy, testing::Not(HasSubstr("unsafe")));
  // The page loads nothing from elsewhere, and has no inline script or style outside of the policy.
  EXPECT_EQ(page.body.find("https://"), std::string::npos);
  for (const char* inline_code : {" style=\"", " onclick=", " onload=", "innerHTML"}) {
    EXPECT_EQ(page.body.find(inline_code), std::string::npos) << inline_code;
  }
  client.Send("HEAD", "/", "");
  const HttpAnswer head = client.Read("HEAD");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-length"), std::to_string(kPageHtml.size()));
  EXPECT_EQ(client.Get("/", {{"Host", "evil.example"}}).status, 421);
  EXPECT_EQ(client.Post("/", {{"a", 1}}).status, 405);
}

TEST(RoutesTest, PathsAndMethods) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  for (const char* path : {"/nothing", "/index.html", "/v1/models/", "//health", "*",
                           "/v1/completions/", "/v1%2Fkv-cache", "http://localhost", "/he%61lth"}) {
    const HttpAnswer answer = client.Get(path);
    EXPECT_EQ(answer.status, 404) << path;
    EXPECT_EQ(answer.error("type"), "not_found_error");
  }
  for (const char* method : {"DELETE", "BREW"}) {
    const HttpAnswer get = client.Ask(method, "/v1/models", "", {});
    EXPECT_EQ(get.status, 405) << method;
    EXPECT_EQ(get.headers.at("allow"), "GET, HEAD, OPTIONS");
    const HttpAnswer post = client.Ask(method, "/v1/completions", "", {});
    EXPECT_EQ(post.status, 405) << method;
    EXPECT_EQ(post.headers.at("allow"), "POST, OPTIONS");
  }
  EXPECT_EQ(client.Get("/v1/completions").status, 405);
  client.Send("HEAD", "/v1/completions", "");
  EXPECT_EQ(client.Read("HEAD").status, 405);
}

// HAProxy's health checks ask OPTIONS / with HTTP/1.0, without a host.
TEST(RoutesTest, OptionsTellsTheMethods) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  for (const auto& [path, allow] :
       std::map<std::string, std::string>{{"/", "GET, HEAD, OPTIONS"},
                                          {"*", "GET, HEAD, OPTIONS"},
                                          {"/v1/completions", "POST, OPTIONS"}}) {
    const HttpAnswer answer = client.Ask("OPTIONS", path, "", {});
    EXPECT_EQ(answer.status, 204) << path;
    EXPECT_EQ(answer.headers.at("allow"), allow);
    EXPECT_FALSE(answer.headers.contains("content-length"));
    EXPECT_FALSE(answer.headers.contains("access-control-allow-origin"));
  }
  EXPECT_EQ(client.Ask("OPTIONS", "/nothing", "", {}).status, 404);
  EXPECT_EQ(client.Ask("OPTIONS", "/", "", {{"Host", "evil.example"}}).status, 421);
  HttpClient old(server.http_address());
  old.SendText("OPTIONS / HTTP/1.0\r\n\r\n");
  EXPECT_THAT(old.ReadToEnd(), StartsWith("HTTP/1.1 204 No Content\r\n"));
}

TEST(RoutesTest, PagesOfOtherOriginsReadOnlyWhatIsAllowed) {
  TestServerOptions options = WithHttp();
  options.transport.http_origins = {"http://localhost:5173", "https://a.example"};
  const TestServer server(options);
  HttpClient client(server.http_address());
  const HttpClient::Headers asked = {{"Origin", "http://localhost:5173"},
                                     {"Access-Control-Request-Method", "POST"},
                                     {"Access-Control-Request-Headers", "authorization,x-other"}};
  const HttpAnswer preflight = client.Ask("OPTIONS", "/v1/chat/completions", "", asked);
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "http://localhost:5173");
  EXPECT_EQ(preflight.headers.at("access-control-allow-headers"), "authorization,x-other");
  EXPECT_EQ(preflight.headers.at("access-control-allow-methods"), "GET, HEAD, POST");
  EXPECT_EQ(preflight.headers.at("vary"), "Origin");
  for (const char* const path : {"/v1/models", "/nothing"}) {
    EXPECT_EQ(client.Get(path, {{"Origin", "https://a.example"}})
                  .headers.at("access-control-allow-origin"),
              "https://a.example")
        << path;
    for (const char* const other : {"https://a.example.evil", "http://a.example", "null", ""}) {
      EXPECT_FALSE(
          client.Get(path, {{"Origin", other}}).headers.contains("access-control-allow-origin"))
          << other;
    }
  }
  EXPECT_FALSE(client.Get("/v1/models").headers.contains("access-control-allow-origin"))
      << "of the request before";
  TestServerOptions every = WithHttp();
  every.transport.http_origins = {"*"};
  const TestServer open(every);
  EXPECT_EQ(HttpClient(open.http_address())
                .Get("/v1/models", {{"Origin", "https://b.example"}})
                .headers.at("access-control-allow-origin"),
            "https://b.example");
}

TEST(RoutesTest, NamesOfModelsMayHaveSlashesAndColons) {
  TestServerOptions options = WithHttp();
  options.models[0].name = "org/model-0.6B";
  options.models[1].name = "model:0.6b";
  const TestServer server(options);
  HttpClient client(server.http_address());
  for (const std::string path : {"org/model-0.6B", "org%2Fmodel-0.6B"}) {
    EXPECT_EQ(client.Get("/v1/models/" + path).json().at("id"), "org/model-0.6B");
  }
  EXPECT_EQ(client.Get("/v1/models/model:0.6b").json().at("id"), "model:0.6b");
  EXPECT_EQ(client.Get("/v1/models/org").status, 404);
  const json completion =
      client.Post("/v1/completions", {{"model", "org/model-0.6B"}, {"prompt", "a"}}).json();
  EXPECT_EQ(completion.at("model"), "org/model-0.6B");
  EXPECT_EQ(client.Get("/v1/kv-cache?model=org%2Fmodel-0.6B").status, 200);
  EXPECT_THAT(client.Get("/metrics").body, HasSubstr("model=\"org/model-0.6B\""));
}

TEST(RoutesTest, HeadIsGetWithoutItsBody) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  for (const char* path : {"/health", "/v1/models", "/v1/models/mha"}) {
    const HttpAnswer get = client.Get(path);
    client.Send("HEAD", path, "");
    const HttpAnswer head = client.Read("HEAD");
    EXPECT_EQ(head.status, 200);
    EXPECT_EQ(head.headers.at("content-length"), std::to_string(get.body.size()));
  }
}

TEST(RoutesTest, TargetsMayNameTheirHost) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  EXPECT_EQ(client.Get("http://localhost:8080/v1/models/mha").json().at("id"), "mha");
  // An absolute target takes precedence over the Host field.
  EXPECT_EQ(client.Get("http://evil.example/health").status, 421);
  EXPECT_EQ(client.Get("http://localhost/health", {{"Host", "evil.example"}}).status, 200);
}

TEST(RoutesTest, OtherSitesNamesAreNotOurs) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  const HttpClient::Headers evil = {{"Host", "evil.example:8080"}};
  const HttpAnswer answer = client.Get("/v1/models", evil);
  EXPECT_EQ(answer.status, 421);
  EXPECT_EQ(answer.error("code"), "unknown_host");
  EXPECT_THAT(answer.message(),
              AllOf(StartsWith("the host is \"evil.example:8080\"; allowed: IP addresses, "),
                    HasSubstr("localhost"), HasSubstr("(more with --http-hosts)")));
  EXPECT_EQ(client.Post("/v1/completions", {{"model", "mha"}, {"prompt", "a"}}, evil).status, 421);
  HttpClient own(server.http_address());
  EXPECT_EQ(own.Get("/v1/models", {{"Host", server.http_address()}}).status, 200);
}

class HttpAccessTest : public testing::Test {
 protected:
  HttpAccessTest() {
    std::ofstream file(tokens_);
    for (const std::string scope : {"inference", "statistics", "admin"}) {
      file << TokenLine(scope, scope, "token of " + scope);
    }
  }

  static HttpClient::Headers Bearer(const std::string& token) {
    return {{"Authorization", "Bearer " + token}};
  }

  const TempDir directory_;
  const std::filesystem::path tokens_ = directory_.path() / "tokens";
};

TEST_F(HttpAccessTest, EveryPathAsksForItsScope) {
  TestServerOptions options = WithHttp();
  options.transport.access.tokens = tokens_;
  options.chat_template = *BuiltInTemplate("plain");
  const TestServer server(options);
  // Path, request, and required scope of each route.
  const struct {
    std::string path, target;
    json body;
    std::set<std::string> scopes;
  } routes[] = {
      {"/v1/models", "/v1/models", nullptr, {"inference", "admin"}},
      {"/v1/models/", "/v1/models/mha", nullptr, {"inference", "admin"}},
      {"/v1/chat/completions",
       "/v1/chat/completions",
       {{"model", "mha"}, {"messages", {{{"role", "user"}, {"content", "a"}}}}},
       {"inference", "admin"}},
      {"/v1/completions",
       "/v1/completions",
       {{"model", "mha"}, {"prompt", "a"}},
       {"inference", "admin"}},
      {"/tokenize", "/tokenize", {{"model", "mha"}, {"text", "a"}}, {"inference", "admin"}},
      {"/detokenize",
       "/detokenize",
       {{"model", "mha"}, {"token_ids", {97}}},
       {"inference", "admin"}},
      {"/v1/responses",
       "/v1/responses",
       {{"model", "mha"}, {"input", "a"}, {"max_output_tokens", 1}},
       {"inference", "admin"}},
      {"/v1/messages",
       "/v1/messages",
       {{"model", "mha"}, {"messages", {{{"role", "user"}, {"content", "a"}}}}, {"max_tokens", 1}},
       {"inference", "admin"}},
      {"/v1/messages/count_tokens",
       "/v1/messages/count_tokens",
       {{"model", "mha"}, {"messages", {{{"role", "user"}, {"content", "a"}}}}},
       {"inference", "admin"}},
      {"/v1/kv-cache", "/v1/kv-cache", nullptr, {"statistics", "admin"}},
      {"/metrics", "/metrics", nullptr, {"statistics", "admin"}},
      {"/api/tags", "/api/tags", nullptr, {"inference", "admin"}},
      {"/api/ps", "/api/ps", nullptr, {"inference", "admin"}},
      {"/api/show", "/api/show", {{"model", "mha"}}, {"inference", "admin"}},
      {"/api/chat",
       "/api/chat",
       {{"model", "mha"}, {"messages", {{{"role", "user"}, {"content", "a"}}}}, {"stream", false}},
       {"inference", "admin"}},
      {"/api/generate",
       "/api/generate",
       {{"model", "mha"}, {"prompt", "a"}, {"stream", false}},
       {"inference", "admin"}},
  };
  std::set<std::string> known = {"/", "/health", "/api/version"};  // open to every client
  for (const std::string& open : known) {
    EXPECT_EQ(HttpClient(server.http_address()).Get(open).status, 200) << open;
  }
  for (const auto& route : routes) {
    SCOPED_TRACE(route.path);
    known.insert(route.path);
    const std::string method = route.body.is_null() ? "GET" : "POST";
    const std::string body = route.body.is_null() ? "" : route.body.dump();
    for (const HttpClient::Headers& wrong : std::vector<HttpClient::Headers>{
             {}, Bearer("x"), {{"Authorization", "Basic token of admin"}}}) {
      HttpClient client(server.http_address());
      const HttpAnswer answer = client.Ask(method, route.target, body, wrong);
      EXPECT_EQ(answer.status, 401);
      EXPECT_EQ(answer.headers.at("www-authenticate"), "Bearer");
      if (route.path.starts_with("/api/")) {
        EXPECT_TRUE(answer.json().at("error").is_string()) << answer.body;
      } else {
        EXPECT_EQ(answer.error("type"), "authentication_error");
      }
    }
    for (const std::string scope : {"inference", "statistics", "admin"}) {
      HttpClient client(server.http_address());
      const HttpAnswer answer = client.Ask(method, route.target, body, Bearer("token of " + scope));
      if (route.scopes.contains(scope)) {
        EXPECT_EQ(answer.status, 200) << scope << answer.body;
      } else {
        EXPECT_EQ(answer.status, 403) << scope;
        if (route.path.starts_with("/api/")) continue;
        EXPECT_EQ(answer.error("type"), "permission_error");
        EXPECT_EQ(answer.error("code"), "scope_missing");
      }
    }
  }
  for (const Routes::Route& route : Routes::Table()) {
    EXPECT_TRUE(known.contains(std::string(route.path))) << route.path << ": who may ask for it?";
  }
  // As Anthropic's clients send a token.
  EXPECT_EQ(HttpClient(server.http_address())
                .Get("/v1/models", {{"x-api-key", "token of inference"}})
                .status,
            200);
  EXPECT_EQ(HttpClient(server.http_address()).Get("/v1/models", {{"x-api-key", "x"}}).status, 401);
  // With authentication, an accepted host name grants nothing.
  HttpClient client(server.http_address());
  HttpClient::Headers named = Bearer("token of admin");
  named["Host"] = "models.example";
  EXPECT_EQ(client.Get("/v1/models", named).status, 200);
  EXPECT_FALSE(
      client.Get("/v1/kv-cache", Bearer("token of statistics")).json().contains("sequences"));
  EXPECT_TRUE(client.Get("/v1/kv-cache", Bearer("token of admin")).json().contains("sequences"));
  // Two tokens count as none.
  client.SendText(
      "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer token of admin\r\n"
      "Authorization: Bearer token of admin\r\n\r\n");
  EXPECT_EQ(client.Read().status, 401);
}

TEST(HttpServerTest, SaysHowItStartsAndDrains) {
  TransportOptions options;
  AuthGate gate(options);
  HttpServer server("127.0.0.1:0", options, gate);
  HttpClient client(server.address());
  EXPECT_EQ(client.Get("/health").status, 503);
  const HttpAnswer starting = client.Get("/v1/models");
  EXPECT_EQ(starting.status, 503);
  EXPECT_EQ(starting.error("code"), "starting");
  EXPECT_EQ(starting.headers.at("retry-after"), "1");
  ServerCore core({});
  gate.Open(core);
  server.Serve();
  EXPECT_EQ(client.Get("/health").json(), json({{"status", "ok"}}));
  EXPECT_EQ(client.Get("/v1/models").status, 200);
  HttpClient other(server.address());
  EXPECT_EQ(other.Get("/health").status, 200);
  HttpClient scrapes(server.address());
  EXPECT_EQ(scrapes.Get("/metrics").status, 200);
  server.StartDrain();
  const HttpAnswer draining = client.Get("/v1/models");
  EXPECT_EQ(draining.status, 503);
  EXPECT_EQ(draining.error("code"), "draining");
  EXPECT_EQ(draining.headers.at("retry-after"), "1");
  EXPECT_EQ(draining.headers.at("connection"), "close");
  EXPECT_TRUE(client.IsClosed());
  EXPECT_EQ(other.Get("/health").status, 503);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(scrapes.Get("/metrics").status, 200);
  EXPECT_THROW(HttpClient{server.address()}, boost::system::system_error);
  server.Close(kForever);
}

bool HasIpv6() {
  boost::asio::io_context context;
  boost::asio::ip::tcp::acceptor acceptor(context);
  boost::system::error_code error;
  acceptor.open(boost::asio::ip::tcp::v6(), error);
  if (!error) acceptor.bind({boost::asio::ip::address_v6::loopback(), 0}, error);
  return !error;
}

TEST(HttpServerTest, ListensOnAllAddressesOfAName) {
  TransportOptions options;
  const AuthGate gate(options);
  const HttpServer server("localhost:0", options, gate);
  const std::string port = server.address().substr(server.address().rfind(':') + 1);
  boost::asio::io_context context;
  const auto found = boost::asio::ip::tcp::resolver(context).resolve("localhost", port);
  for (const auto& entry : found) {
    const auto address = entry.endpoint().address();
    if (address.is_v6() && !HasIpv6()) continue;
    HttpClient client((address.is_v6() ? "[" + address.to_string() + "]" : address.to_string()) +
                      ":" + port);
    EXPECT_EQ(client.Get("/health").status, 503) << address;
  }
}

TEST(HttpServerTest, OneClientIsTheSameOverBothTransports) {
  if (!HasIpv6()) GTEST_SKIP() << "no IPv6 on this machine";
  TestServerOptions options = WithHttp({.models = {EndlessModel()}});
  options.transport.http = "[::]:0";
  options.admission.max_client_requests = 1;
  const TestServer server(options);
  GenerateCall running(server.inference(), Greedy("endless", "abc", kEndlessPositions - 10));
  ASSERT_TRUE(running.Read());
  const std::string& address = server.http_address();
  HttpClient client("127.0.0.1" + address.substr(address.rfind(':')));
  const HttpAnswer refused = client.Post("/v1/completions", {{"prompt", "a"}});
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.error("code"), "client_limit");
}

TEST(HttpServerTest, APortInUseIsOneClearLine) {
  TransportOptions options;
  const AuthGate gate(options);
  const HttpServer server("127.0.0.1:0", options, gate);
  try {
    const HttpServer second(server.address(), options, gate);
    ADD_FAILURE() << "two servers listen on " << server.address();
  } catch (const std::runtime_error& e) {
    EXPECT_THAT(e.what(),
                AllOf(HasSubstr("--http " + server.address()), testing::Not(HasSubstr("\n"))));
  }
}

TEST(HttpServerTest, WithoutMemoryWhatComputesIsRefused) {
  TransportOptions options;
  options.is_memory_short = [] { return true; };
  AuthGate gate(options);
  ServerCore core({});
  gate.Open(core);
  HttpServer server("127.0.0.1:0", options, gate);
  server.Serve();
  HttpClient client(server.address());
  EXPECT_EQ(client.Get("/v1/models").status, 200);
  const HttpAnswer refused = client.Post("/v1/completions", {{"prompt", "a"}});
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.error("code"), "memory_pressure");
}

}  // namespace
}  // namespace triptych::server::routes_test
