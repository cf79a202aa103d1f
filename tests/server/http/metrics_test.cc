// Tests of Prometheus metrics, and of request logs.
#include <algorithm>
#include <map>
#include <regex>
#include <sstream>
#include <string>

#include "tests/server/captured_log.h"
#include "tests/server/http/http_client.h"
#include "tests/server/test_server.h"
#include "tests/support/process.h"

namespace triptych::server::metrics_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string Scrape(const TestServer& server) {
  HttpClient client(server.http_address());
  const HttpAnswer answer = client.Get("/metrics");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  return answer.body;
}

// Values by name and labels, as written in the text.
std::map<std::string, double> Series(const std::string& text) {
  std::map<std::string, double> series;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#")) continue;
    const size_t space = line.rfind(' ');
    EXPECT_TRUE(series.emplace(line.substr(0, space), std::stod(line.substr(space + 1))).second);
  }
  return series;
}

// promtool's result; nothing if it is not installed.
std::optional<Process::Result> Promtool(const std::string& arguments,
                                        const std::string& input = "") {
  const std::string command = "cd " TRIPTYCH_MONITORING " && exec promtool " + arguments;
  Process::Result result = Process({"/bin/sh", "-c", command}, {.input = input}).Wait();
  if (result.exit_code == 127) return std::nullopt;
  return result;
}

TEST(HttpMetricsTest, TotalsAreWhatClientsSaw) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  for (const TestModel& model : OneOfEachKind()) {
    int64_t prompt = 0, cached = 0, generated = 0, sequences = 0, bytes = 0, waits = 0;
    const auto add = [&](const auto& usage) {
      prompt += usage.prompt_tokens();
      cached += usage.cached_prompt_tokens();
      generated += usage.generated_tokens();
      bytes += usage.kv_cache().used_bytes();
      waits += std::max<int64_t>(usage.generated_tokens() - 1, 0);
      ++sequences;
    };
    for (const int32_t tokens : {1, 7, 12}) {
      add(Generate(server.inference(), Greedy(model.name, std::string(20, 'a'), tokens))
              ->completion()
              .usage());
    }
    v1::ScoreRequest score;
    score.set_model(model.name);
    for (const char* text : {"abc", "to be"}) score.add_inputs()->set_text(text);
    v1::ScoreResponse scores;
    ASSERT_TRUE(
        CallUnary(server.inference(), &v1::InferenceService::Stub::Score, score, &scores).ok());
    for (const auto& result : scores.results()) add(result.usage());
    const json usage =
        client
            .Post("/v1/completions",
                  {{"model", model.name}, {"prompt", "abc"}, {"max_tokens", 3}, {"temperature", 0}})
            .json()
            .at("usage");
    const int64_t completion = usage.at("completion_tokens");
    prompt += usage.at("prompt_tokens").get<int64_t>();
    generated += completion;
    waits += completion - 1;
    bytes += usage.at("kv_cache").at("used_bytes").get<int64_t>();
    ++sequences;
    EXPECT_EQ(
        client.Post("/v1/completions", {{"model", model.name}, {"prompt", "a"}, {"n", 0}}).status,
        400);

    server.Stats();  // the engine has finished the steps of the delivered tokens
    const std::map<std::string, double> series = Series(Scrape(server));
    const auto value = [&](const std::string& name, const std::string& more = "") {
      return series.at(name + "{model=\"" + model.name + "\",attention=\"" + model.name + "\"" +
                       more + "}");
    };
    EXPECT_EQ(value("triptych_prompt_tokens_total"), prompt);
    EXPECT_EQ(value("triptych_cached_prompt_tokens_total"), cached);
    EXPECT_GT(cached, 0);
    EXPECT_EQ(value("triptych_prefix_cache_hits_total"), cached);
    EXPECT_EQ(value("triptych_generation_tokens_total"), generated);
    EXPECT_EQ(value("triptych_request_kv_cache_bytes_sum"), bytes);
    EXPECT_EQ(value("triptych_request_kv_cache_bytes_count"), sequences);
    EXPECT_EQ(value("triptych_e2e_request_latency_seconds_count"), sequences);
    EXPECT_EQ(value("triptych_request_queue_time_seconds_count"), sequences);
    EXPECT_EQ(value("triptych_time_to_first_token_seconds_count"), 4);
    EXPECT_EQ(value("triptych_inter_token_latency_seconds_count"), waits);
    double requests = 0;
    for (const char* outcome : {"stop", "length"}) {
      requests += value("triptych_requests_total", ",outcome=\"" + std::string(outcome) + "\"");
    }
    EXPECT_EQ(requests, 4);
    EXPECT_EQ(value("triptych_requests_total", ",outcome=\"scored\""), 1);
    EXPECT_EQ(value("triptych_requests_total", ",outcome=\"invalid\""), 1);
    EXPECT_EQ(value("triptych_requests_running"), 0);
    EXPECT_EQ(value("triptych_kv_cache_used_bytes"), 0);
    EXPECT_EQ(value("triptych_kv_cache_position_bytes"), BytesPerPosition(model.config));
    EXPECT_EQ(value("triptych_kv_cache_pool_bytes"), server.Stats(model.name).pool_bytes());
  }
}

TEST(HttpMetricsTest, SaysWhatIsUnderWay) {
  const TestServer server(WithHttp({.models = {EndlessModel()}, .max_running = 1}));
  const auto request = Greedy("endless", "abc", kEndlessPositions - 10);
  GenerateCall running(server.inference(), request);
  ASSERT_TRUE(running.Read());
  GenerateCall waiting(server.inference(), request);
  const std::string kind(Name(EndlessModel().config.attention));
  const std::string labels = "{model=\"endless\",attention=\"" + kind + "\"}";
  // Published numbers can be one engine turn older than RPCs' answers: they can show the first
  // request while it waits for its first step.
  std::map<std::string, double> series;
  ASSERT_TRUE(WaitFor([&] {
    series = Series(Scrape(server));
    return series.at("triptych_requests_waiting" + labels) == 1 &&
           series.at("triptych_requests_running" + labels) == 1;
  }));
  const double utilization = series.at("triptych_kv_cache_utilization_ratio" + labels);
  EXPECT_GT(utilization, 0);
  EXPECT_LE(utilization, 1);
  EXPECT_EQ(series.at("triptych_kv_cache_pool_bytes" + labels),
            series.at("triptych_kv_cache_allocated_bytes" + labels) +
                series.at("triptych_kv_cache_available_bytes" + labels));
  EXPECT_GT(series.at("triptych_step_seconds_count" + labels), 0);
}

TEST(HttpMetricsTest, PromtoolFindsNothingWrong) {
  const TestServer server(WithHttp());
  Generate(server.inference(), Greedy("mla", "abc", 5));
  const auto result = Promtool("check metrics", Scrape(server));
  if (!result) GTEST_SKIP() << "promtool is missing (Debian: prometheus)";
  // Promtool parses the whole as endpoint pickers do. It dislikes names of other servers' metrics.
  std::istringstream lines(result->out + result->err);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(line.starts_with("vllm:")) << line;
  }
}

TEST(HttpMetricsTest, ClientsMakeNoSeries) {
  const TestServer server(WithHttp());
  const size_t before = Series(Scrape(server)).size();
  HttpClient client(server.http_address());
  for (int i = 0; i < 50; ++i) {
    const std::string odd = "no-such-model\"\n{}" + std::to_string(i);
    EXPECT_EQ(
        client.Post("/v1/completions", {{"model", odd}, {"prompt", "a"}, {"user", odd}}).status,
        404);
    EXPECT_EQ(client.Get("/no-such-path" + std::to_string(i)).status, 404);
    EXPECT_FALSE(GenerateCall(server.inference(), Greedy(odd, "a", 1)).Finish().ok());
    Generate(server.inference(), Greedy("mla", "a", 1 + i % 3));
  }
  const std::string after = Scrape(server);
  EXPECT_EQ(Series(after).size(), before);
  EXPECT_THAT(after, AllOf(Not(HasSubstr("no-such")), Not(HasSubstr("127.0.0.1"))));
}

TEST(HttpMetricsTest, ARequestsTraceIsInItsLine) {
  const std::string trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const CapturedLog log;
  {
    const TestServer server(WithHttp());
    HttpClient client(server.http_address());
    const json prompt = {{"model", "mla"}, {"prompt", "a"}, {"max_tokens", 1}};
    const std::string http =
        client.Post("/v1/completions", prompt, {{"traceparent", trace}}).headers.at("x-request-id");
    const std::string bad = client.Post("/v1/completions", prompt, {{"traceparent", trace + "0"}})
                                .headers.at("x-request-id");
    v1::ScoreRequest request;
    request.set_model("mla");
    request.add_inputs()->set_text("abc");
    v1::ScoreResponse response;
    grpc::ClientContext context;
    context.AddMetadata("traceparent", trace);
    ASSERT_TRUE(server.inference().Score(&context, request, &response).ok());
    const auto id = context.GetServerInitialMetadata().find("triptych-request-id");
    ASSERT_NE(id, context.GetServerInitialMetadata().end());
    const std::string grpc(id->second.data(), id->second.size());
    const auto line = [&](const std::string& name) {
      std::string text;
      const auto is_there = [&] {
        text = log.text();
        return text.find("request " + name) != text.npos;
      };
      if (!WaitFor(is_there)) return std::string("none");
      text = text.substr(text.find("request " + name));
      return text.substr(0, text.find('\n'));
    };
    EXPECT_TRUE(line(http).ends_with("; traceparent " + trace)) << line(http);
    EXPECT_TRUE(line(grpc).ends_with("; traceparent " + trace)) << line(grpc);
    EXPECT_THAT(line(bad), Not(HasSubstr("traceparent")));
  }
}

TEST(MonitoringTest, PromtoolTakesTheRulesAndTheConfiguration) {
  for (const char* arguments :
       {"check config prometheus.yml", "check rules rules.yml", "test rules rules_test.yml"}) {
    const auto result = Promtool(arguments);
    if (!result) GTEST_SKIP() << "promtool is missing (Debian: prometheus)";
    EXPECT_EQ(result->exit_code, 0) << arguments << "\n" << result->out << result->err;
  }
}

TEST(MonitoringTest, NamesWhatTheServerExposes) {
  const TestServer server(WithHttp());
  const std::map<std::string, double> series = Series(Scrape(server));
  const std::regex name("triptych_[a-z0-9_]+");
  for (const char* file : {"dashboard.json", "rules.yml", "rules_test.yml"}) {
    const std::string path = TRIPTYCH_MONITORING "/" + std::string(file);
    const std::string text = ReadFile(path);
    int found = 0;
    for (auto it = std::sregex_iterator(text.begin(), text.end(), name);
         it != std::sregex_iterator(); ++it, ++found) {
      const auto first = series.lower_bound(it->str() + "{");
      EXPECT_TRUE(first != series.end() && first->first.starts_with(it->str() + "{"))
          << it->str() << " in " << path;
    }
    EXPECT_GT(found, 0) << path;
  }
  const json dashboard = json::parse(ReadFile(TRIPTYCH_MONITORING "/dashboard.json"));
  EXPECT_FALSE(dashboard.at("panels").empty());
}

}  // namespace
}  // namespace triptych::server::metrics_test
