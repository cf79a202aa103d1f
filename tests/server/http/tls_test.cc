// Tests of HTTP over TLS: certificates, and the course and end of connections.
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <boost/system/system_error.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "server/core/access/auth_gate.h"
#include "server/http/http_server.h"
#include "tests/server/captured_log.h"
#include "tests/server/fake_core.h"
#include "tests/server/http/http_client.h"
#include "tests/server/test_server.h"
#include "tests/support/certificates.h"
#include "tests/support/temp_dir.h"

namespace triptych::server::tls_test {
namespace {

namespace asio = boost::asio;
namespace ssl = asio::ssl;
using namespace std::chrono_literals;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kHealth = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

class TlsClient {
 public:
  // Throws if the connection fails, or if the client does not trust the server.
  TlsClient(const std::string& address, const CertificateAuthority& trusted,
            const Identity& own = {}, int receive_buffer = 0) {
    tls_.set_verify_mode(ssl::verify_peer);
    tls_.add_certificate_authority(asio::buffer(trusted.certificate()));
    if (!own.key.empty()) {
      tls_.use_certificate_chain(asio::buffer(own.certificate));
      tls_.use_private_key(asio::buffer(own.key), ssl::context::pem);
    }
    stream_.emplace(Connect(context_, address, receive_buffer), tls_);
    stream_->handshake(ssl::stream_base::client);
  }

  void SendText(const std::string& text) { asio::write(*stream_, asio::buffer(text)); }
  // All bytes until the server's close_notify. Throws if the connection ends in another way.
  std::string ReadToEnd() {
    std::string text;
    boost::system::error_code error;
    asio::read(*stream_, asio::dynamic_buffer(text), error);
    if (error != asio::error::eof) throw boost::system::system_error(error);
    return text;
  }

 private:
  asio::io_context context_;
  ssl::context tls_{ssl::context::tls_client};
  std::optional<ssl::stream<asio::ip::tcp::socket>> stream_;
};

class HttpTlsTest : public testing::Test {
 protected:
  HttpTlsTest() {
    Install(authority_.Issue("server"));
    options_.http = "127.0.0.1:0";
    options_.tls = TlsOptions{.certificate = certificate_, .key = key_, .client_authority = {}};
  }

  static void Replace(const std::filesystem::path& file, const std::string& text) {
    std::ofstream(file.string() + ".new") << text;
    std::filesystem::rename(file.string() + ".new", file);
  }
  void Install(const Identity& identity) const {
    Replace(certificate_, identity.certificate);
    Replace(key_, identity.key);
  }
  void Serve() {
    gate_ = std::make_unique<AuthGate>(options_);
    gate_->Open(fake_.core());
    server_ = std::make_unique<HttpServer>("127.0.0.1:0", options_, *gate_);
    server_->Serve();
  }
  // The answer of /health to a client with this identity, or the error.
  std::string Health(const CertificateAuthority& trusted, const Identity& own = {}) const {
    try {
      TlsClient client(server_->address(), trusted, own);
      client.SendText(kHealth);
      return client.ReadToEnd();
    } catch (const std::exception& e) {
      return e.what();
    }
  }

  const TempDir directory_;
  const std::filesystem::path certificate_ = directory_.path() / "server.crt";
  const std::filesystem::path key_ = directory_.path() / "server.key";
  const CertificateAuthority authority_;
  FakeCore fake_;
  TransportOptions options_;
  std::unique_ptr<AuthGate> gate_;
  std::unique_ptr<HttpServer> server_;
};

std::shared_ptr<grpc::ChannelCredentials> Trusting(const CertificateAuthority& authority) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = authority.certificate();
  return grpc::SslCredentials(options);
}

TEST_F(HttpTlsTest, SpeaksOnlyTlsAndReadsItsCertificateAgain) {
  Serve();
  EXPECT_THAT(Health(authority_), HasSubstr("ok"));
  HttpClient plain(server_->address());
  plain.SendText(kHealth);
  EXPECT_THAT(plain.ReadToEnd(), Not(HasSubstr("HTTP")));  // at most a TLS alert
  const CertificateAuthority next;
  EXPECT_THAT(Health(next), Not(HasSubstr("ok")));
  Install(next.Issue("server"));
  EXPECT_THAT(Health(next), HasSubstr("ok"));
}

TEST_F(HttpTlsTest, AsksClientsForTheirCertificates) {
  const CertificateAuthority clients;
  options_.tls->client_authority = directory_.path() / "clients.crt";
  Replace(*options_.tls->client_authority, clients.certificate());
  Serve();
  EXPECT_THAT(Health(authority_, clients.Issue("alice")), HasSubstr("ok"));
  EXPECT_THAT(Health(authority_), Not(HasSubstr("ok")));
  EXPECT_THAT(Health(authority_, authority_.Issue("bob")), Not(HasSubstr("ok")));
}

TEST_F(HttpTlsTest, StreamsAndEnds) {
  Serve();
  fake_.LetGo();
  TlsClient client(server_->address(), authority_);
  client.SendText(PostText(Stream(300), "Connection: close\r\n"));
  EXPECT_THAT(client.ReadToEnd(),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), EndsWith("data: [DONE]\n\n\r\n0\r\n\r\n")));
}

TEST_F(HttpTlsTest, AnswersBeforeABodyIsThereAndEnds) {
  Serve();
  TlsClient client(server_->address(), authority_);
  client.SendText(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: 99999999\r\n\r\n" +
      std::string(100'000, ' '));
  EXPECT_THAT(client.ReadToEnd(), StartsWith("HTTP/1.1 413 "));
}

TEST_F(HttpTlsTest, AReaderThatStoppedIsCutOff) {
  options_.limits.stall_timeout = 200ms;
  Serve();
  const CapturedLog log;
  TlsClient client(server_->address(), authority_, {}, /*receive_buffer=*/4096);
  nlohmann::json request = Stream(FakeCore::kPositions - 10);
  request["logprobs"] = 20;
  client.SendText(PostText(request));
  EXPECT_TRUE(WaitFor([&] { return fake_.core().requests.live_requests() == 1; }));
  // So that sockets fill, but what waits for them is less than would end the request by itself.
  EXPECT_TRUE(WaitFor([&] {
    fake_.LetCompute(2);
    return fake_.core().requests.live_requests() == 0;
  }));
  EXPECT_TRUE(WaitFor([&] { return log.text().find("on small: CANCELLED") != std::string::npos; }))
      << log.text();
  EXPECT_THROW(client.ReadToEnd(), boost::system::system_error);
}

TEST_F(HttpTlsTest, AChainThatTlsRefusesLeavesTheCertificateBefore) {
  Serve();
  const CapturedLog log;
  const Identity own = authority_.Issue("server");
  const Identity weak = authority_.Issue("weak", "DNS:localhost", 2, "P-192");
  Install({own.certificate + weak.certificate, own.key});
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Health(authority_), HasSubstr("ok"));
  const std::string line = "error certificate not reloaded, the previous one stays in use: ";
  EXPECT_THAT(log.text(), HasSubstr(line));
  EXPECT_EQ(log.text().find(line), log.text().rfind(line));
}

TEST_F(HttpTlsTest, SharesItsCertificateWithGrpc) {
  TestServerOptions options{.models = {EndlessModel()}, .transport = options_};
  options.credentials = Trusting(authority_);
  const CapturedLog log;
  const TestServer server(options);
  const CertificateAuthority next;
  Install(next.Issue("server"));
  TlsClient client(server.http_address(), next);
  const auto health =
      grpc::health::v1::Health::NewStub(OwnConnection(server.address(), Trusting(next)));
  grpc::health::v1::HealthCheckResponse response;
  EXPECT_TRUE(CallUnary(*health, &grpc::health::v1::Health::Stub::Check, {}, &response).ok());
  const std::string line = "certificate reloaded";
  EXPECT_THAT(log.text(), HasSubstr(line));
  EXPECT_EQ(log.text().find(line), log.text().rfind(line));
}

}  // namespace
}  // namespace triptych::server::tls_test
