// Tests of HTTP connections' limits, and of requests whose clients stall, disconnect or send too
// little.
#include "server/http/connection.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <list>
#include <memory>
#include <new>
#include <optional>
#include <regex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/core/access/auth_gate.h"
#include "server/core/requests/tokenization_queue.h"
#include "server/http/http_server.h"
#include "tests/server/captured_log.h"
#include "tests/server/fake_core.h"
#include "tests/server/http/http_client.h"
#include "tests/server/test_server.h"

namespace triptych::server::connection_test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

TestServerOptions WithLimits(const TransportLimits& limits) {
  return WithHttp(OneEndlessModel(limits));
}

json Short() { return {{"prompt", "a"}, {"max_tokens", 3}, {"temperature", 0}}; }

json Endless(bool stream) {
  return {{"prompt", "a"},
          {"max_tokens", kEndlessPositions - 10},
          {"temperature", 0},
          {"stream", stream},
          {"logit_bias", {{"257", -1000}}}};
}

bool Runs(const v1::KvCacheStats& stats) { return stats.running_sequences() == 1; }

// True if a request has arrived; it can have ended.
bool HasOne(const v1::KvCacheStats& stats) { return stats.requests().accepted() == 1; }

TEST(HttpConnectionTest, TakesRequestsOneAfterTheOther) {
  const TestServer server(WithLimits({}));
  HttpClient client(server.http_address());
  const std::string text = client.Post("/v1/completions", Short()).json()["choices"][0]["text"];
  EXPECT_EQ(client.Get("/health").status, 200);
  // Pipelined, and in pieces.
  client.SendText(PostText(Short()) + "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" +
                  PostText(Short()));
  EXPECT_EQ(client.Read().json()["choices"][0]["text"], text);
  EXPECT_EQ(client.Read().json()["status"], "ok");
  EXPECT_EQ(client.Read().json()["choices"][0]["text"], text);
  for (const char c : PostText(Short())) client.SendText({c});
  EXPECT_EQ(client.Read().json()["choices"][0]["text"], text);
}

TEST(HttpConnectionTest, TakesChunkedBodies) {
  const TestServer server(WithLimits({}));
  HttpClient client(server.http_address());
  client.SendText(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Type: "
      "application/json; "
      "charset=utf-8\r\n\r\n9\r\n{\"text\": \r\n5;x=y\r\n\"ab\"}\r\n0\r\n\r\n");
  EXPECT_EQ(client.Read().json(), json({{"token_ids", {97, 98}}}));
  EXPECT_EQ(client.Get("/health").status, 200);
}

TEST(HttpConnectionTest, SaysThatABodyMayCome) {
  const TestServer server(WithLimits({}));
  HttpClient client(server.http_address());
  const std::string post = PostText(Short(), "Expect: 100-continue\r\n");
  const size_t body = post.find("\r\n\r\n") + 4;
  client.SendText(post.substr(0, body));
  EXPECT_EQ(client.Read().status, 100);
  client.SendText(post.substr(body));
  EXPECT_EQ(client.Read().status, 200);
  // Not if the body has already arrived.
  client.SendText(post);
  EXPECT_EQ(client.Read().status, 200);
}

TEST(HttpConnectionTest, SpeaksHttp10) {
  const TestServer server(WithLimits({}));
  json request = Short();
  request["stream"] = true;
  std::string post = PostText(request);
  post.replace(post.find("1.1"), 3, "1.0");
  HttpClient client(server.http_address());
  client.SendText(post);
  const HttpAnswer answer = client.Read();
  EXPECT_FALSE(answer.headers.contains("transfer-encoding"));
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n")) << answer.body;
  EXPECT_TRUE(client.IsClosed());
}

struct BadText {
  std::string text;
  int status;
};

TEST(HttpConnectionTest, RefusesWhatItCannotRead) {
  TransportLimits limits;
  limits.max_metadata_bytes = 4096;
  const TestServer server(WithLimits(limits));
  const std::string post = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n";
  const std::string type = "Content-Type: application/json\r\n";
  const std::string get = "GET /health HTTP/1.1\r\nHost: localhost\r\n";
  const std::string next = get + "\r\n";  // must not be read as a request
  const std::string filler(8192, 'a');
  for (const BadText& bad : std::vector<BadText>{
           {"hello\r\n\r\n", 400},
           {"\x16\x03\x01\x02" + std::string(200, '\1') + "\r\n\r\n", 400},
           {"GET /health HTTP/3.0\r\n\r\n", 400},
           {"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + filler + "\r\n\r\n", 431},
           {"GET /" + filler + " HTTP/1.1\r\nHost: localhost\r\n\r\n", 431},
           {post + type + "Content-Length: 1073741824\r\n\r\n", 413},
           {post + type + "Content-Length: 99999999999999999999\r\n\r\n", 400},
           {post + type + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
           {post + type + "Transfer-Encoding: chunked\r\n\r\nx\r\n", 400},
           {post + type + "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
           {post + type + "Transfer-Encoding: xchunked\r\n\r\n" + next, 501},
           {"POST /nothing HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n" + next, 501},
           {"GET /health HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + next, 400},
           {"GET /health HTTP/1.1\r\n\r\n" + next, 400},
           {"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n" + next, 400},
           {get + "Content-Length: 1\r\n\r\n", 400},
           {get + "Transfer-Encoding: chunked\r\n\r\n", 400},
           {post + type + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n", 415},
           {post + "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n", 415},
           {post + "Content-Length: 2\r\n\r\n", 415},
           {post + type + "Expect: cake\r\nContent-Length: 2\r\n\r\n", 417},
           {"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n", 404},
       }) {
    SCOPED_TRACE(bad.text.substr(0, 80));
    HttpClient client(server.http_address());
    client.SendText(bad.text);
    const HttpAnswer answer = client.Read();
    EXPECT_EQ(answer.status, bad.status) << answer.body;
    EXPECT_FALSE(answer.message().empty());
    EXPECT_EQ(answer.headers.at("connection"), "close");
    EXPECT_TRUE(client.IsClosed());
  }
  EXPECT_EQ(HttpClient(server.http_address()).Get("/health").status, 200);
  HttpClient client(server.http_address());
  client.SendText("HEAD /health HTTP/1.1\r\n\r\n");
  const std::string answer = client.ReadToEnd();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 400 ")) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << answer;  // without a body
}

TEST(HttpConnectionTest, ABodyMayBeAsLargeAsAMessage) {
  const TestServer server(WithHttp());
  // README: 64 KiB, plus 32 bytes for each of 64 positions.
  constexpr size_t kBytes = 67584;
  const std::string empty = json({{"model", "mha"}, {"text", ""}}).dump();
  const auto tokenize = [&](size_t bytes, bool chunked) {
    const std::string body =
        json({{"model", "mha"}, {"text", std::string(bytes - empty.size(), 'a')}}).dump();
    HttpClient client(server.http_address());
    if (!chunked) return client.Ask("POST", "/tokenize", body, {}).status;
    client.SendText(
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
        "Content-Type: application/json\r\n\r\n");
    char size[20];
    std::snprintf(size, sizeof(size), "%zx\r\n", body.size() - 1);
    client.SendText("1\r\n" + body.substr(0, 1) + "\r\n" + size + body.substr(1) + "\r\n0\r\n\r\n");
    return client.Read().status;
  };
  for (const bool chunked : {false, true}) {
    EXPECT_EQ(tokenize(kBytes, chunked), 200);
    EXPECT_EQ(tokenize(kBytes + 1, chunked), 413);
  }
}

TEST(HttpConnectionTest, BodiesAndAnswersAreBounded) {
  TransportLimits limits;
  limits.max_memory_bytes = 64 << 10;  // half of it per client
  const TestServer server(WithLimits(limits));
  HttpClient client(server.http_address());
  const auto tokenize = [&](size_t bytes) {
    return client.Post("/tokenize", {{"text", std::string(bytes, 'a')}});
  };
  for (int i = 0; i < 2; ++i) EXPECT_EQ(tokenize(10'000).status, 200);
  // Four bytes of answer per byte of body.
  const HttpAnswer answer = tokenize(12'000);
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.error("code"), "memory_pressure");
  EXPECT_EQ(tokenize(10'000).status, 200);
  // Six bytes of answer per generated byte.
  const HttpAnswer completion = client.Post(
      "/v1/completions", {{"prompt", "a"}, {"max_tokens", 6'000}, {"logit_bias", {{"1", 1000}}}});
  EXPECT_EQ(completion.status, 503);
  EXPECT_FALSE(completion.headers.at("x-request-id").empty());
  const HttpAnswer body = tokenize(60'000);
  EXPECT_EQ(body.status, 503);
  EXPECT_EQ(body.error("code"), "memory_pressure");
  EXPECT_EQ(body.headers.at("connection"), "close");
}

TEST(HttpConnectionTest, AClientThatClosesFreesItsBlocks) {
  TestServerOptions options = WithLimits({});
  options.chat_template = *BuiltInTemplate("zephyr");  // its turns end only with the end token
  const TestServer server(options);
  for (const auto close : {&HttpClient::Close, &HttpClient::EndWrites}) {
    for (const bool stream : {true, false}) {
      json chat = Endless(stream);
      chat.erase("prompt");
      chat["messages"] = {{{"role", "user"}, {"content", "a"}}};
      chat["max_tokens"] = kEndlessPositions - 100;
      for (const auto& [path, request] :
           {std::pair<std::string, json>("/v1/completions", Endless(stream)),
            std::pair<std::string, json>("/v1/chat/completions", chat)}) {
        SCOPED_TRACE(path);
        HttpClient client(server.http_address());
        client.Send("POST", path, request.dump());
        if (stream) {
          HttpClient::Events events(client);
          for (int i = 0; i < 3; ++i) ASSERT_TRUE(events.Next().has_value());
        }
        ASSERT_TRUE(server.WaitForStats("endless", Runs));
        (client.*close)();
        EXPECT_TRUE(server.WaitForStats("endless", IsIdle));
      }
    }
  }
  EXPECT_EQ(server.Stats("endless").requests().cancelled(), 8);
}

TEST(HttpConnectionTest, AStalledConnectionIsCutOff) {
  TransportLimits limits;
  limits.stall_timeout = 300ms;
  const CapturedLog log;
  const TestServer server(WithLimits(limits));
  HttpClient slow(server.http_address(), /*receive_buffer=*/4096);
  slow.Send("POST", "/v1/completions", Endless(true).dump());
  ASSERT_TRUE(server.WaitForStats("endless", HasOne));
  HttpClient other(server.http_address());
  EXPECT_EQ(other.Post("/v1/completions", Short()).status, 200);
  EXPECT_TRUE(server.WaitForStats("endless", IsIdle));
  EXPECT_EQ(server.Stats("endless").requests().cancelled(), 1);
  EXPECT_TRUE(WaitFor([&] {
    return log.text().find("on endless: CANCELLED") != std::string::npos;
  })) << log.text();
}

TEST(HttpConnectionTest, AReaderThatFallsBehindIsCutOff) {
  TransportLimits limits;
  limits.stall_timeout = kForever;
  const CapturedLog log;
  const TestServer server(WithLimits(limits));
  HttpClient slow(server.http_address(), /*receive_buffer=*/4096);
  json request = Endless(true);
  request["logprobs"] = 20;
  slow.Send("POST", "/v1/completions", request.dump());
  ASSERT_TRUE(server.WaitForStats("endless", HasOne));
  EXPECT_TRUE(server.WaitForStats("endless", IsIdle));
  EXPECT_TRUE(WaitFor([&] {
    return log.text().find("on endless: SLOW_READER") != std::string::npos;
  })) << log.text();
  std::string last;
  HttpClient::Events events(slow);
  while (const auto next = events.Next()) last = *next;
  EXPECT_EQ(json::parse(last).at("error").at("code"), "slow_reader");
  EXPECT_FALSE(events.ended_well());
}

TEST(HttpConnectionTest, ARequestHasItsTime) {
  TransportLimits limits;
  limits.max_request_time = 300ms;
  const TestServer server(WithLimits(limits));
  HttpClient silent(server.http_address());
  EXPECT_TRUE(silent.IsClosed());  // closed sooner than an idle connection after a request
  const std::string post = PostText(Short());
  for (const std::string& part : {std::string("GET /hea"), post.substr(0, post.size() - 1)}) {
    // A part that arrives too late is not answered.
    EXPECT_TRUE(WaitFor([&] {
      HttpClient client(server.http_address());
      const std::optional<HttpAnswer> answer = client.TryAsk(part);
      return answer && answer->status == 408 && client.IsClosed();
    }));
  }
}

TEST(HttpConnectionTest, ATimeoutIsNotAnsweredAsTheRequestBefore) {
  TransportLimits limits;
  limits.max_request_time = 2s;
  const TestServer server(WithLimits(limits));
  HttpClient client(server.http_address());
  EXPECT_EQ(client.Ask("HEAD", "/health", "", {}).status, 200);
  client.SendText("GET /hea");
  EXPECT_EQ(client.Read().error("code"), "request_timeout");
}

TEST(HttpConnectionTest, A100DoesNotRestartTheTime) {
  TransportLimits limits;
  limits.max_request_time = 5s;
  const TestServer server(WithLimits(limits));
  HttpClient client(server.http_address());
  const std::string post = PostText(Short(), "Expect: 100-continue\r\n");
  const size_t body = post.find("\r\n\r\n") + 4;
  client.SendText(post.substr(0, body - 1));
  HttpClient later(server.http_address());
  later.SendText("GET /hea");
  std::this_thread::sleep_for(500ms);  // long enough to arrive after the later one
  client.SendText(post.substr(body - 1, 1));
  EXPECT_EQ(client.Read().status, 100);
  EXPECT_EQ(later.Read().status, 408);
  EXPECT_TRUE(client.HasSome());
  EXPECT_EQ(client.Read().status, 408);
}

TEST(HttpConnectionTest, AConnectionWithoutRequestsIsClosed) {
  TransportLimits limits;
  limits.max_idle = 300ms;
  const TestServer server(WithLimits(limits));
  HttpClient client(server.http_address());
  EXPECT_EQ(client.Get("/health").status, 200);
  EXPECT_TRUE(client.IsClosed());
}

TEST(HttpConnectionTest, AnOldConnectionIsClosedAfterItsAnswer) {
  TransportLimits limits;
  limits.max_age = 0ms;
  const TestServer server(WithLimits(limits));
  HttpClient client(server.http_address());
  EXPECT_EQ(client.Get("/health").headers.at("connection"), "close");
  EXPECT_TRUE(client.IsClosed());
}

// True if a new connection from the address gets an answer.
bool IsServed(const TestServer& server, const std::string& from) {
  HttpClient client(server.http_address(), 0, from);
  return client.TryGet("/health").has_value();
}

TEST(HttpConnectionTest, TheNumberOfConnectionsIsBounded) {
  TransportLimits limits;
  limits.max_connections = 3;
  limits.max_address_connections = 2;
  const TestServer server(WithLimits(limits));
  HttpClient first(server.http_address()), second(server.http_address());
  EXPECT_EQ(first.Get("/health").status, 200);
  EXPECT_EQ(second.Get("/health").status, 200);
  EXPECT_FALSE(IsServed(server, "127.0.0.1"));  // the address has reached its limit
  {
    HttpClient other(server.http_address(), 0, "127.0.0.2");
    EXPECT_EQ(other.Get("/health").status, 200);
    EXPECT_FALSE(IsServed(server, "127.0.0.3"));
  }
  EXPECT_TRUE(WaitFor([&] { return IsServed(server, "127.0.0.3"); }));
  first.Close();
  EXPECT_TRUE(WaitFor([&] { return IsServed(server, "127.0.0.1"); }));
}

size_t Threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

int64_t ResidentBytes() {
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(HttpConnectionTest, AThousandNeedNoThreadsAndLittleMemory) {
  constexpr int kConnections = 1000;
  struct rlimit limit {};
  getrlimit(RLIMIT_NOFILE, &limit);
  constexpr rlim_t kNeeded = rlim_t{6} * kConnections;  // a client has four
  if (limit.rlim_max < kNeeded) GTEST_SKIP() << "the limit of file descriptors is too low";
  limit.rlim_cur = std::max(limit.rlim_cur, kNeeded);
  setrlimit(RLIMIT_NOFILE, &limit);
  const TestServer server(WithLimits({}));
  HttpClient client(server.http_address());
  EXPECT_EQ(client.Post("/v1/completions", Short()).status, 200);
  const size_t before = Threads();
  const int64_t bytes_before = ResidentBytes();
  std::vector<std::unique_ptr<HttpClient>> idle;
  for (int i = 0; i < kConnections; ++i) {
    idle.push_back(std::make_unique<HttpClient>(server.http_address()));
    const std::string post = PostText(Short());
    idle.back()->SendText(i % 2 == 0 ? "GET /hea" : post.substr(0, post.size() - 1));
  }
  EXPECT_EQ(client.Post("/v1/completions", Short()).status, 200);
  EXPECT_LT(Threads(), before + 10);  // gRPC can start threads
  EXPECT_LT(ResidentBytes() - bytes_before, kConnections * (32 << 10));
  idle.front()->SendText("lth HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(idle.front()->Read().status, 200);
}

TEST(HttpConnectionTest, AResponseThatADrainCutsOffSaysSo) {
  TestServer server(WithLimits({}));
  HttpClient client(server.http_address());
  client.Send("POST", "/v1/completions", Endless(true).dump());
  HttpClient::Events events(client);
  ASSERT_TRUE(events.Next().has_value());
  std::optional<std::string> last;
  std::thread reader([&] {
    while (const auto next = events.Next()) last = next;
  });
  EXPECT_FALSE(server.Shutdown(0ms));
  reader.join();
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(json::parse(*last).at("error").at("code"), "draining");
  EXPECT_FALSE(events.ended_well());
}

// A server of a model whose steps wait for the test.
class HttpHostTest : public testing::Test {
 protected:
  HttpHostTest() {
    gate_.Open(fake_.core());
    server_.Serve();
  }

  FakeCore fake_;
  const TransportOptions options_;
  AuthGate gate_{options_};
  HttpServer server_{"127.0.0.1:0", options_, gate_};
};

TEST(HttpConnectionTest, MemoryOfWaitingStatisticsIsBounded) {
  FakeCore fake;
  TransportOptions options;
  options.limits.max_memory_bytes = 2 << 20;  // half of it per client
  AuthGate gate(options);
  gate.Open(fake.core());
  HttpServer server("127.0.0.1:0", options, gate);
  server.Serve();
  HttpClient generates(server.address()), other(server.address());
  generates.Send("POST", "/v1/completions", Stream(10).dump());
  ASSERT_TRUE(WaitFor([&] { return fake.begun_steps() == 1; }));
  std::list<HttpClient> clients;
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(clients.emplace_back(server.address()).Get("/health").status, 200);
  const std::string path = "/v1/kv-cache?block_map=true";
  for (HttpClient& client : clients) client.Send("GET", path, "");
  EXPECT_EQ(other.Get("/health").status, 200);  // what came before has been seen
  fake.LetGo();
  int refused = 0;
  for (HttpClient& client : clients) {
    const HttpAnswer answer = client.Read();
    if (answer.status == 200) continue;
    EXPECT_EQ(answer.error("code"), "memory_pressure");
    ++refused;
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 20);
  EXPECT_EQ(other.Get(path).status, 200) << "given back";
}

// Proxies close streams that are silent for long. Clients skip comments.
TEST(HttpSilenceTest, AStreamThatWaitsSendsComments) {
  FakeCore fake;
  TransportOptions options;
  options.limits.max_silence = 20ms;
  AuthGate gate(options);
  HttpServer server("127.0.0.1:0", options, gate);
  gate.Open(fake.core());
  server.Serve();
  HttpClient busy(server.address()), client(server.address());
  busy.Send("POST", "/v1/completions", Stream(FakeCore::kPositions - 10).dump());
  ASSERT_TRUE(WaitFor([&] { return fake.begun_steps() == 1; }));
  client.Send("POST", "/v1/completions", Stream(2).dump());
  HttpClient::Events events(client);
  EXPECT_EQ(events.status(), 200);
  EXPECT_EQ(events.header("X-Accel-Buffering"), "no");
  EXPECT_EQ(events.NextText(), ":");
  EXPECT_EQ(events.NextText(), ":") << "as long as it is silent";
  fake.LetGo();
  EXPECT_GE(events.All().size(), 1u);
  busy.Close();
}

TEST_F(HttpHostTest, ADrainLetsAnswersEnd) {
  HttpClient client(server_.address()), other(server_.address());
  EXPECT_EQ(other.Get("/health").status, 200);
  client.Send("POST", "/v1/completions", Stream(20).dump());
  fake_.LetCompute(2);
  HttpClient::Events events(client);
  ASSERT_TRUE(events.Next().has_value());
  server_.StartDrain();
  EXPECT_EQ(other.Get("/health").status, 503);
  fake_.LetGo();
  EXPECT_TRUE(fake_.core().requests.Drain(kForever));
  std::thread closes([&] { server_.Close(kForever); });
  std::optional<std::string> last, next;
  while ((next = events.Next())) last = next;
  EXPECT_EQ(last, "[DONE]");
  EXPECT_TRUE(events.ended_well());
  client.Close();
  closes.join();
}

TEST_F(HttpHostTest, AClientThatClosesFreesItsBlocksByTheNextStep) {
  json chat = Stream(1000);
  chat.erase("prompt");
  chat["messages"] = {{{"role", "user"}, {"content", "a"}}};
  HttpClient other(server_.address());
  for (const auto& [path, request] : {std::pair<std::string, json>("/v1/completions", Stream(1000)),
                                      std::pair<std::string, json>("/v1/chat/completions", chat)}) {
    SCOPED_TRACE(path);
    const int begun = fake_.begun_steps();
    HttpClient client(server_.address());
    client.Send("POST", path, request.dump());
    fake_.LetCompute(2);
    HttpClient::Events events(client);
    ASSERT_TRUE(events.Next().has_value());
    ASSERT_TRUE(WaitFor([&] { return fake_.begun_steps() == begun + 3; }));
    client.Close();
    EXPECT_EQ(other.Get("/health").status, 200);  // what came before has been seen
    EXPECT_EQ(fake_.core().requests.live_requests(), 1);
    fake_.LetCompute(1);  // the step that has begun
    EXPECT_TRUE(WaitFor([&] { return fake_.core().requests.live_requests() == 0; }));
  }
}

TEST_F(HttpHostTest, ErrorsOfRequestsThatWereTakenHaveTheirId) {
  HttpClient client(server_.address());
  json request = Stream(FakeCore::kPositions - 10);
  request["stream"] = false;
  client.Send("POST", "/v1/completions", request.dump());
  EXPECT_TRUE(WaitFor([&] { return fake_.begun_steps() == 1; }));
  fake_.core().requests.Drain(0ms);
  fake_.LetGo();
  const HttpAnswer answer = client.Read();
  EXPECT_EQ(answer.error("code"), "draining");
  EXPECT_FALSE(answer.headers.at("x-request-id").empty());
}

TEST_F(HttpHostTest, ALargeBodyDelaysNoOtherClient) {
  fake_.HoldTexts();
  HttpClient large(server_.address()), other(server_.address());
  const std::string text(TokenizationQueue::kMaxQuickBytes, 'a');
  large.Send("POST", "/tokenize", json({{"text", text}}).dump());
  ASSERT_TRUE(WaitFor([&] { return fake_.held_texts() == 1; }));
  EXPECT_EQ(other.Get("/health").status, 200);
  fake_.LetGo();
  EXPECT_THAT(large.Read().json().at("token_ids"), testing::SizeIs(text.size()));
  EXPECT_EQ(large.Post("/tokenize", {{"text", text}, {"model", "x"}}).status, 404);
}

TEST_F(HttpHostTest, AGrammarDelaysNoOtherClient) {
  fake_.HoldTexts();
  HttpClient client(server_.address()), other(server_.address());
  const json request = {{"prompt", "a"}, {"grammar", "root ::= [a-c]{3}"}};
  client.Send("POST", "/v1/completions", request.dump());
  ASSERT_TRUE(WaitFor([&] { return fake_.held_texts() == 1; }));
  EXPECT_EQ(other.Get("/health").status, 200);
  fake_.LetGo();
  EXPECT_THAT(client.Read().json().at("choices")[0].at("text").get<std::string>(),
              testing::MatchesRegex("[a-c]{3}"));
}

TEST_F(HttpHostTest, LargeBodiesThatWaitAreBounded) {
  constexpr size_t kHalf = TokenizationQueue::kMaxHeldBytes / 2;  // one client's limit
  constexpr size_t kQuick = TokenizationQueue::kMaxQuickBytes;
  TransportOptions options;
  options.limits.max_message_bytes = kHalf;
  HttpServer server("127.0.0.1:0", options, gate_);
  server.Serve();
  fake_.HoldTexts();
  HttpClient held(server.address()), waits(server.address()), refused(server.address());
  const auto text = [](size_t bytes) { return json({{"text", std::string(bytes, 'a')}}); };
  held.Send("POST", "/tokenize", text(kHalf - 2 * kQuick).dump());
  ASSERT_TRUE(WaitFor([&] { return fake_.held_texts() == 1; }));
  waits.Send("POST", "/tokenize", text(kQuick).dump());
  const HttpAnswer answer = refused.Post("/tokenize", text(2 * kQuick));
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.error("code"), "texts_waiting");
  server.StartDrain();
  fake_.core().requests.StartDrain();
  fake_.LetGo();
  EXPECT_EQ(waits.Read().error("code"), "draining");
  EXPECT_EQ(held.Read().status, 200);
}

// The queue outlives the server, which has to wait for what is handled.
TEST_F(HttpHostTest, AServerEndsWhileALargeBodyIsTokenizedAndAnotherWaits) {
  auto server = std::make_unique<HttpServer>("127.0.0.1:0", options_, gate_);
  server->Serve();
  fake_.HoldTexts();
  HttpClient held(server->address()), waits(server->address());
  const json request = {{"text", std::string(TokenizationQueue::kMaxQuickBytes, 'a')}};
  held.Send("POST", "/tokenize", request.dump());
  ASSERT_TRUE(WaitFor([&] { return fake_.held_texts() == 1; }));
  waits.Send("POST", "/tokenize", request.dump());
  std::thread ends([&] { server.reset(); });
  EXPECT_TRUE(held.IsClosed());
  EXPECT_TRUE(waits.IsClosed());
  fake_.LetGo();
  ends.join();
}

TEST_F(HttpHostTest, WaitingForItsTurnIsTimeInTheQueue) {
  fake_.HoldTexts();
  HttpClient client(server_.address());
  json request = Stream(1);
  request["stream"] = false;
  request["prompt"] = std::string(TokenizationQueue::kMaxQuickBytes, 'a');
  client.Send("POST", "/v1/completions", request.dump());
  ASSERT_TRUE(WaitFor([&] { return fake_.held_texts() == 1; }));
  const auto held = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(20ms);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - held;
  fake_.LetGo();
  EXPECT_EQ(client.Read().status, 200);
  const std::string metrics = fake_.core().stats.Metrics();
  const std::regex line("triptych_request_queue_time_seconds_sum\\{[^}]*\\} (\\S+)");
  std::smatch sum;
  ASSERT_TRUE(std::regex_search(metrics, sum, line)) << metrics;
  EXPECT_GE(std::stod(sum[1]), time.count());
}

TEST_F(HttpHostTest, ALargePromptIsAnsweredAsOthersAre) {
  json request = Stream(3);
  request["prompt"] = std::string(TokenizationQueue::kMaxQuickBytes, 'a');
  json endless = request;
  endless["max_tokens"] = FakeCore::kPositions / 2;
  HttpClient client(server_.address());
  client.Send("POST", "/v1/completions", endless.dump());
  EXPECT_TRUE(WaitFor([&] { return fake_.core().requests.live_requests() == 1; }));
  client.Close();
  EXPECT_TRUE(WaitFor([&] {
    fake_.LetCompute(1);  // or the engine waits in a step, and learns nothing
    return fake_.core().requests.live_requests() == 0;
  }));
  EXPECT_LT(fake_.begun_steps(),
            FakeCore::kPositions / 4);  // it ended as its client was gone
  fake_.LetGo();
  HttpClient next(server_.address());
  next.Send("POST", "/v1/completions", request.dump());
  EXPECT_FALSE(HttpClient::Events(next).All().empty());
  request["stream"] = false;
  EXPECT_EQ(next.Post("/v1/completions", request).json().at("usage").at("completion_tokens"), 3);
}

TEST_F(HttpHostTest, PipelinedBytesMayReachTheBound) {
  HttpClient client(server_.address()), other(server_.address());
  client.Send("POST", "/v1/completions", Stream(3).dump());
  EXPECT_TRUE(WaitFor([&] { return fake_.core().requests.live_requests() == 1; }));
  std::string get = "GET /health HTTP/1.1\r\nHost: localhost\r\nX: ";
  get += std::string(Connection::kMaxPipelinedBytes / 2 - get.size() - 4, 'a') + "\r\n\r\n";
  client.SendText(get + get);
  // One thread reads from all connections in turn.
  for (int i = 0; i < 10; ++i) EXPECT_EQ(other.Get("/health").status, 200);
  fake_.LetGo();
  EXPECT_EQ(client.Read().status, 200);
  EXPECT_EQ(client.Read().json()["status"], "ok");
  EXPECT_EQ(client.Read().json()["status"], "ok");
}

TEST_F(HttpHostTest, AClientThatPipelinesTooMuchIsCutOff) {
  HttpClient client(server_.address());
  json request = Stream(3);
  request["stream"] = false;  // no answer yet
  client.Send("POST", "/v1/completions", request.dump());
  EXPECT_TRUE(WaitFor([&] { return fake_.core().requests.live_requests() == 1; }));
  client.SendText(std::string(Connection::kMaxPipelinedBytes + 1, 'a'));
  EXPECT_TRUE(client.IsClosed());
}

// Stream whose operations fail as if memory were exhausted, or that writes a little at a time.
class FailingStream final : public ByteStream {
 public:
  struct Fails {
    std::atomic<bool> reads = false, writes = false, is_slow = false;
    std::atomic<bool> next_post = false;  // posting to the mailbox fails
  };
  static constexpr size_t kSlowBytes = 16 << 10;
  static constexpr std::chrono::milliseconds kSlowTime{50};

  FailingStream(Socket socket, const Fails& fails)
      : stream_(PlainStream(std::move(socket))),
        fails_(fails),
        timer_(stream_->socket().get_executor()) {}

  void Handshake(Done done) override { stream_->Handshake(std::move(done)); }
  void ReadSome(boost::asio::mutable_buffer into, Transferred done) override {
    if (fails_.reads) throw std::bad_alloc();
    stream_->ReadSome(into, std::move(done));
  }
  void WriteSome(boost::asio::const_buffer from, Transferred done) override {
    if (fails_.writes) throw std::bad_alloc();
    if (!fails_.is_slow) return stream_->WriteSome(from, std::move(done));
    timer_.expires_after(kSlowTime);
    timer_.async_wait([this, from, done = std::move(done)](const boost::system::error_code&) {
      stream_->WriteSome(boost::asio::buffer(from, kSlowBytes), done);
    });
  }
  void EndWrites(Done done) override { stream_->EndWrites(std::move(done)); }
  Socket& socket() override { return stream_->socket(); }

 private:
  const std::unique_ptr<ByteStream> stream_;
  const Fails& fails_;
  boost::asio::steady_timer timer_;
};

class HttpFailureTest : public testing::Test {
 public:
  ~HttpFailureTest() override {
    work_.reset();
    thread_.join();
    mailbox_->Close();
  }

 protected:
  using Tcp = boost::asio::ip::tcp;

  HttpFailureTest() { gate_.Open(fake_.core()); }

  // Serves one connection, whose operations fail according to fails_.
  void Accept() {
    thread_ = std::thread([this] {
      auto connection = std::make_shared<Connection>(
          std::make_unique<FailingStream>(acceptor_.accept(), fails_), "127.0.0.1",
          HttpShared{.routes = routes_,
                     .hosts = hosts_,
                     .origins = origins_,
                     .limits = options_.limits,
                     .budget = budget_},
          [this](const auto&) { closed_ = true; });
      connection->Start();
      connection.reset();
      while (true) {
        try {
          context_.run();
          return;
        } catch (const std::bad_alloc&) {
        }
      }
    });
  }
  std::string address() const {
    return "127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port());
  }

  FakeCore fake_;
  TransportOptions options_;
  AuthGate gate_{options_};
  FailingStream::Fails fails_;
  std::atomic<bool> closed_ = false;
  ByteBudget budget_{16 << 20};
  boost::asio::io_context context_;
  std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> work_{
      context_.get_executor()};
  Tcp::acceptor acceptor_{context_, {boost::asio::ip::address_v4::loopback(), 0}};
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>([this](Mailbox::Task task) {
    if (fails_.next_post.exchange(false)) throw std::bad_alloc();
    boost::asio::post(context_, std::move(task));
  });
  const HostNames hosts_{options_};
  const CrossOrigin origins_{{}};
  Routes routes_{gate_, mailbox_, budget_, {}};
  std::thread thread_;
};

TEST_F(HttpFailureTest, AWriteAfterAStepMayFail) {
  Accept();
  HttpClient client(address());
  client.Send("POST", "/v1/completions", Stream(1000).dump());
  fake_.LetCompute(2);
  HttpClient::Events events(client);
  ASSERT_TRUE(events.Next().has_value());
  fails_.writes = true;
  fake_.LetGo();
  EXPECT_TRUE(WaitFor([&] { return closed_ && fake_.core().requests.live_requests() == 0; }));
}

TEST_F(HttpFailureTest, AFailedNotificationComesWithTheNext) {
  Accept();
  HttpClient client(address());
  client.Send("POST", "/v1/completions", Stream(FakeCore::kPositions - 10).dump());
  fake_.LetCompute(2);
  HttpClient::Events events(client);
  ASSERT_TRUE(events.Next().has_value());
  fails_.next_post = true;
  EXPECT_TRUE(WaitFor([&] {
    fake_.LetCompute(1);
    return !fails_.next_post;
  }));
  for (int i = 0; i < 10; ++i) {
    fake_.LetCompute(1);
    ASSERT_TRUE(events.Next().has_value());
  }
}

TEST_F(HttpFailureTest, ADrainWaitsUntilAnAnswerIsTaken) {
  Accept();
  HttpClient client(address());
  fails_.is_slow = true;
  json request = Stream(400);
  request["stream"] = false;
  request["logprobs"] = 20;
  client.Send("POST", "/v1/completions", request.dump());
  ASSERT_TRUE(WaitFor([&] { return fake_.core().requests.live_requests() == 1; }));
  HttpAnswer answer;
  std::thread reader([&] { answer = client.Read(); });
  fake_.LetGo();
  EXPECT_TRUE(fake_.core().requests.Drain(kForever));
  fails_.writes = true;  // nothing more is sent from now on
  reader.join();
  EXPECT_GT(answer.body.size(), 5 * FailingStream::kSlowBytes);
}

TEST_F(HttpFailureTest, StatisticsMayFail) {
  Accept();
  HttpClient client(address());
  EXPECT_TRUE(client.Get("/v1/kv-cache").json().contains("models"));
  fails_.writes = true;
  client.Send("GET", "/v1/kv-cache", "");
  EXPECT_TRUE(WaitFor([&] { return closed_.load(); }));
}

TEST_F(HttpFailureTest, TheBeginningMayFail) {
  fails_.reads = true;
  Accept();
  HttpClient client(address());
  EXPECT_TRUE(WaitFor([&] { return closed_.load(); }));
}

TEST_F(HttpFailureTest, AWriteAfterATimeoutMayFail) {
  options_.limits.max_request_time = 200ms;
  Accept();
  HttpClient client(address());
  client.SendText("GET /hea");
  fails_.writes = true;
  EXPECT_TRUE(WaitFor([&] { return closed_.load(); }));
}

TEST_F(HttpFailureTest, AnAnswerIsTakenAtALeastRate) {
  options_.limits.stall_timeout = 500ms;
  options_.limits.max_message_bytes = 1 << 20;
  Accept();
  HttpClient client(address());
  fails_.is_slow = true;
  client.Send("POST", "/tokenize", json({{"text", std::string(512 << 10, 'a')}}).dump());
  // The whole answer would take five seconds, but the client always makes progress.
  EXPECT_TRUE(WaitFor([&] {
    client.DropSome(1 << 20);
    return closed_.load();
  }));
}

}  // namespace
}  // namespace triptych::server::connection_test
