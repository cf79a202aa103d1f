// What connections over HTTP may take, and what becomes of a request when its client does not do
// its part.
#include "server/http/connection.h"

#include <sys/resource.h>

#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "server/core/gate.h"
#include "server/http/http_server.h"
#include "tests/server/http/http_client.h"
#include "tests/server/test_server.h"
#include "tests/support/certificates.h"
#include "tests/support/temp_dir.h"

namespace triptych {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::HasSubstr;

TestServerOptions WithHttp(const TransportLimits& limits = {}) {
  TestServerOptions options{.models = {EndlessModel()}};
  options.transport.http = "127.0.0.1:0";
  options.transport.limits = limits;
  return options;
}

json Short() { return {{"prompt", "a"}, {"max_tokens", 3}, {"temperature", 0}}; }

json Endless(bool stream) {
  return {{"prompt", "a"},
          {"max_tokens", kEndlessPositions - 10},
          {"temperature", 0},
          {"stream", stream},
          {"logit_bias", {{"257", -1000}}}};
}

bool IsIdle(const v1::KvCacheStats& stats) {
  return stats.running_sequences() + stats.waiting_sequences() == 0 && stats.reserved_bytes() == 0;
}

bool Runs(const v1::KvCacheStats& stats) { return stats.running_sequences() == 1; }

std::string PostText(const json& body, const std::string& more = "") {
  const std::string text = body.dump();
  return "POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\n" + more +
         "Content-Length: " + std::to_string(text.size()) + "\r\n\r\n" + text;
}

TEST(HttpConnectionTest, TakesRequestsOneAfterTheOther) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  const std::string text = client.Post("/v1/completions", Short()).json()["choices"][0]["text"];
  EXPECT_EQ(client.Get("/health").status, 200);
  // Ahead of their answers, and in pieces.
  client.SendText(PostText(Short()) + "GET /health HTTP/1.1\r\n\r\n" + PostText(Short()));
  EXPECT_EQ(client.Read().json()["choices"][0]["text"], text);
  EXPECT_EQ(client.Read().json()["status"], "ok");
  EXPECT_EQ(client.Read().json()["choices"][0]["text"], text);
  for (const char c : PostText(Short())) client.SendText({c});
  EXPECT_EQ(client.Read().json()["choices"][0]["text"], text);
}

TEST(HttpConnectionTest, TakesChunkedBodies) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  client.SendText(
      "POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json; "
      "charset=utf-8\r\n\r\n9\r\n{\"text\": \r\n5;x=y\r\n\"ab\"}\r\n0\r\n\r\n");
  EXPECT_EQ(client.Read().json(), json({{"token_ids", {97, 98}}}));
  EXPECT_EQ(client.Get("/health").status, 200);
}

TEST(HttpConnectionTest, SaysThatABodyMayCome) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  const std::string post = PostText(Short(), "Expect: 100-continue\r\n");
  const size_t body = post.find("\r\n\r\n") + 4;
  client.SendText(post.substr(0, body));
  EXPECT_EQ(client.Read().status, 100);
  client.SendText(post.substr(body));
  EXPECT_EQ(client.Read().status, 200);
}

TEST(HttpConnectionTest, SpeaksHttp10) {
  const TestServer server(WithHttp());
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
  const TestServer server(WithHttp(limits));
  const std::string post = "POST /tokenize HTTP/1.1\r\n";
  const std::string type = "Content-Type: application/json\r\n";
  const std::string filler(8192, 'a');
  for (const BadText& bad : std::vector<BadText>{
           {"hello\r\n\r\n", 400},
           {"\x16\x03\x01\x02" + std::string(200, '\1') + "\r\n\r\n", 400},
           {"GET /health HTTP/3.0\r\n\r\n", 400},
           {"GET /health HTTP/1.1\r\nX: " + filler + "\r\n\r\n", 431},
           {"GET /" + filler + " HTTP/1.1\r\n\r\n", 431},
           {post + type + "Content-Length: 1073741824\r\n\r\n", 413},
           {post + type + "Content-Length: 99999999999999999999\r\n\r\n", 400},
           {post + type + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
           {post + type + "Transfer-Encoding: chunked\r\n\r\nx\r\n", 400},
           {post + type + "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
           {post + type + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n", 415},
           {post + "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n", 415},
           {post + "Content-Length: 2\r\n\r\n", 415},
           {post + type + "Expect: cake\r\nContent-Length: 2\r\n\r\n", 417},
           {"POST /nothing HTTP/1.1\r\nContent-Length: 2\r\n\r\n", 404},
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
}

TEST(HttpConnectionTest, ABodyMayBeAsLargeAsAMessage) {
  TestServerOptions options;
  options.transport.http = "127.0.0.1:0";
  const TestServer server(options);  // 64 positions of context
  constexpr size_t kBytes = (64 << 10) + 64 * 32;
  const std::string empty = json({{"model", "mha"}, {"text", ""}}).dump();
  const auto tokenize = [&](size_t bytes, bool chunked) {
    const std::string body =
        json({{"model", "mha"}, {"text", std::string(bytes - empty.size(), 'a')}}).dump();
    HttpClient client(server.http_address());
    if (!chunked) return client.Ask("POST", "/tokenize", body, {}).status;
    client.SendText(
        "POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
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

TEST(HttpConnectionTest, AllBodiesTogetherAreBounded) {
  TransportLimits limits;
  limits.max_memory_bytes = 1000;
  const TestServer server(WithHttp(limits));
  HttpClient client(server.http_address());
  EXPECT_EQ(client.Post("/tokenize", {{"text", std::string(900, 'a')}}).status, 200);
  EXPECT_EQ(client.Post("/tokenize", {{"text", std::string(900, 'a')}}).status, 200);
  const HttpAnswer refused = client.Post("/tokenize", {{"text", std::string(1000, 'a')}});
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.error("code"), "memory_pressure");
}

TEST(HttpConnectionTest, AClientThatClosesFreesItsBlocks) {
  const TestServer server(WithHttp());
  for (const bool stream : {true, false}) {
    HttpClient client(server.http_address());
    client.Send("POST", "/v1/completions", Endless(stream).dump());
    if (stream) {
      HttpClient::Events events(client);
      for (int i = 0; i < 3; ++i) ASSERT_TRUE(events.Next().has_value());
    }
    ASSERT_TRUE(server.WaitForStats("endless", Runs));
    client.Close();
    EXPECT_TRUE(server.WaitForStats("endless", IsIdle));
  }
  EXPECT_EQ(server.Stats("endless").requests().cancelled(), 2);
}

TEST(HttpConnectionTest, WhoSendsTooMuchAheadIsCutOff) {
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  client.Send("POST", "/v1/completions", Endless(false).dump());
  ASSERT_TRUE(server.WaitForStats("endless", Runs));
  client.SendText(std::string(Connection::kMaxPipelinedBytes, 'a'));
  EXPECT_TRUE(Runs(server.Stats("endless")));
  client.SendText("a");
  EXPECT_TRUE(server.WaitForStats("endless", IsIdle));
}

TEST(HttpConnectionTest, ASlowReaderIsCutOffAndHoldsUpNobody) {
  TransportLimits limits;
  limits.stall_timeout = 1s;
  const TestServer server(WithHttp(limits));
  HttpClient slow(server.http_address(), /*receive_buffer=*/4096);
  json request = Endless(true);
  request["logprobs"] = 20;
  slow.Send("POST", "/v1/completions", request.dump());
  ASSERT_TRUE(server.WaitForStats("endless", Runs));
  HttpClient other(server.http_address());
  EXPECT_EQ(other.Post("/v1/completions", Short()).status, 200);
  EXPECT_TRUE(server.WaitForStats("endless", IsIdle));
  EXPECT_EQ(other.Post("/v1/completions", Short()).status, 200);
}

TEST(HttpConnectionTest, TimeIsLimited) {
  TransportLimits limits;
  limits.max_idle = 300ms;
  limits.max_request_time = 300ms;
  const TestServer server(WithHttp(limits));
  HttpClient idle(server.http_address());
  EXPECT_TRUE(idle.IsClosed());
  HttpClient used(server.http_address());
  EXPECT_EQ(used.Get("/health").status, 200);
  EXPECT_TRUE(used.IsClosed());
  for (const std::string& part :
       {std::string("GET /hea"), PostText(Short()).substr(0, PostText(Short()).size() - 1)}) {
    HttpClient client(server.http_address());
    client.SendText(part);
    EXPECT_EQ(client.Read().status, 408);
    EXPECT_TRUE(client.IsClosed());
  }
}

TEST(HttpConnectionTest, ThereAreSoManyAtMost) {
  TransportLimits limits;
  limits.max_connections = 2;
  const TestServer server(WithHttp(limits));
  HttpClient first(server.http_address());
  EXPECT_EQ(first.Get("/health").status, 200);
  {
    HttpClient second(server.http_address());
    EXPECT_EQ(second.Get("/health").status, 200);
    HttpClient third(server.http_address());
    const HttpAnswer refused = third.Read();
    EXPECT_EQ(refused.status, 503);
    EXPECT_EQ(refused.error("code"), "too_many_connections");
    EXPECT_TRUE(third.IsClosed());
  }
  // Until the server has noticed that the second one closed.
  const auto end = std::chrono::steady_clock::now() + kForever;
  int status = 0;
  while (status != 200 && std::chrono::steady_clock::now() < end) {
    HttpClient client(server.http_address());
    client.SendText("GET /health HTTP/1.1\r\n\r\n");
    status = client.Read().status;
  }
  EXPECT_EQ(status, 200);
}

size_t Threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

TEST(HttpConnectionTest, AThousandNeedNoThreads) {
  constexpr int kConnections = 1000;
  struct rlimit limit {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t needed = 3 * kConnections;
  if (limit.rlim_max < needed) GTEST_SKIP() << "too few descriptors";
  limit.rlim_cur = std::max(limit.rlim_cur, needed);
  setrlimit(RLIMIT_NOFILE, &limit);
  const TestServer server(WithHttp());
  HttpClient client(server.http_address());
  EXPECT_EQ(client.Post("/v1/completions", Short()).status, 200);
  const size_t before = Threads();
  std::vector<std::unique_ptr<HttpClient>> idle;
  for (int i = 0; i < kConnections; ++i) {
    idle.push_back(std::make_unique<HttpClient>(server.http_address()));
    if (i % 2 == 0) idle.back()->SendText("GET /hea");
  }
  EXPECT_EQ(client.Post("/v1/completions", Short()).status, 200);
  EXPECT_LT(Threads(), before + 10);  // gRPC may start some of its own
  idle.front()->SendText("lth HTTP/1.1\r\n\r\n");
  EXPECT_EQ(idle.front()->Read().status, 200);
}

TEST(HttpConnectionTest, ADrainLetsAnswersEnd) {
  TestServer server(WithHttp());
  HttpClient client(server.http_address());
  json request = Short();
  request["max_tokens"] = 2000;
  request["stream"] = true;
  request["logit_bias"] = {{"257", -1000}};
  client.Send("POST", "/v1/completions", request.dump());
  HttpClient::Events events(client);
  ASSERT_TRUE(events.Next().has_value());
  std::thread reader([&] {
    std::optional<std::string> last, next;
    while ((next = events.Next())) last = next;
    EXPECT_EQ(last, "[DONE]");
    EXPECT_TRUE(events.ended_well());
  });
  EXPECT_TRUE(server.Shutdown(kForever));
  reader.join();
}

TEST(HttpConnectionTest, WhatADrainCutsOffSaysSo) {
  TestServer server(WithHttp());
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

class HttpTlsTest : public testing::Test {
 protected:
  static void Replace(const std::filesystem::path& file, const std::string& text) {
    std::ofstream(file.string() + ".new") << text;
    std::filesystem::rename(file.string() + ".new", file);
  }
  void Install(const Identity& identity) const {
    Replace(certificate_, identity.certificate);
    Replace(key_, identity.key);
  }

  // What /health says to a client of that name, or why there is no answer.
  std::string Health(const std::string& address, const CertificateAuthority& trusted,
                     const Identity& own = {}) const {
    namespace asio = boost::asio;
    namespace ssl = asio::ssl;
    try {
      ssl::context tls(ssl::context::tls_client);
      tls.set_verify_mode(ssl::verify_peer);
      tls.add_certificate_authority(asio::buffer(trusted.certificate()));
      if (!own.key.empty()) {
        tls.use_certificate_chain(asio::buffer(own.certificate));
        tls.use_private_key(asio::buffer(own.key), ssl::context::pem);
      }
      asio::io_context context;
      ssl::stream<asio::ip::tcp::socket> stream(context, tls);
      const size_t colon = address.rfind(':');
      stream.next_layer().connect({asio::ip::make_address(address.substr(0, colon)),
                                   static_cast<uint16_t>(std::stoi(address.substr(colon + 1)))});
      stream.handshake(ssl::stream_base::client);
      asio::write(stream, asio::buffer(std::string("GET /health HTTP/1.1\r\n\r\n")));
      boost::beast::flat_buffer buffer;
      boost::beast::http::response<boost::beast::http::string_body> response;
      boost::beast::http::read(stream, buffer, response);
      return response.body();
    } catch (const std::exception& e) {
      return e.what();
    }
  }

  TransportOptions Options() const {
    TransportOptions options;
    options.tls = TlsOptions{.certificate = certificate_, .key = key_, .client_authority = {}};
    return options;
  }

  const TempDir directory_;
  const std::filesystem::path certificate_ = directory_.path() / "server.crt";
  const std::filesystem::path key_ = directory_.path() / "server.key";
  const CertificateAuthority authority_;
};

TEST_F(HttpTlsTest, SpeaksTlsAloneAndReadsItsCertificateAnew) {
  Install(authority_.Issue("server"));
  const TransportOptions options = Options();
  const Gate gate(options);
  HttpServer server("127.0.0.1:0", options, gate);
  server.Serve();
  EXPECT_THAT(Health(server.address(), authority_), HasSubstr("ok"));
  HttpClient plain(server.address());
  plain.SendText("GET /health HTTP/1.1\r\n\r\n");
  EXPECT_THAT(plain.ReadToEnd(), testing::Not(HasSubstr("HTTP")));  // an alert of TLS at most
  const CertificateAuthority next;
  EXPECT_THAT(Health(server.address(), next), testing::Not(HasSubstr("ok")));
  Install(next.Issue("server"));
  EXPECT_THAT(Health(server.address(), next), HasSubstr("ok"));
}

TEST_F(HttpTlsTest, AsksClientsForTheirCertificates) {
  Install(authority_.Issue("server"));
  const CertificateAuthority clients;
  TransportOptions options = Options();
  options.tls->client_authority = directory_.path() / "clients.crt";
  Replace(*options.tls->client_authority, clients.certificate());
  const Gate gate(options);
  HttpServer server("127.0.0.1:0", options, gate);
  server.Serve();
  EXPECT_THAT(Health(server.address(), authority_, clients.Issue("alice")), HasSubstr("ok"));
  EXPECT_THAT(Health(server.address(), authority_), testing::Not(HasSubstr("ok")));
  EXPECT_THAT(Health(server.address(), authority_, authority_.Issue("bob")),
              testing::Not(HasSubstr("ok")));
}

}  // namespace
}  // namespace triptych
