// Tests of TLS: accepted connections, and certificates that change while the server runs.
#include <fstream>

#include "engine/base/error.h"
#include "server/core/access/certificate_files.h"
#include "tests/server/any_method.h"
#include "tests/server/captured_log.h"
#include "tests/server/test_server.h"
#include "tests/support/certificates.h"

namespace triptych::server::tls_test {
namespace {

using grpc::StatusCode;
using testing::HasSubstr;

constexpr const char* kMethod = "/triptych.v1.ModelService/ListModels";

std::shared_ptr<grpc::ChannelCredentials> Trusting(const CertificateAuthority& authority,
                                                   const Identity& own = {}) {
  return grpc::SslCredentials({.pem_root_certs = authority.certificate(),
                               .pem_private_key = own.key,
                               .pem_cert_chain = own.certificate});
}

class TlsTest : public testing::Test {
 protected:
  TlsTest() { Install(authority_.Issue("server")); }

  static void Replace(const std::filesystem::path& file, const std::string& text) {
    const std::filesystem::path beside = file.string() + ".new";
    std::ofstream(beside) << text;
    std::filesystem::rename(beside, file);
  }
  void Install(const Identity& own) const {
    Replace(tls_.certificate, own.certificate);
    Replace(tls_.key, own.key);
  }
  void Authenticate(const CertificateAuthority& clients) {
    tls_.client_authority = directory_.path() / "clients.crt";
    Replace(*tls_.client_authority, clients.certificate());
  }

  TestServerOptions Options(const Identity& client = {}) const {
    TestServerOptions options{.models = {EndlessModel()}};
    options.transport.tls = tls_;
    options.credentials = Trusting(authority_, client);
    return options;
  }

  // Calls over a new connection.
  static StatusCode Try(const TestServer& server,
                        const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                        const std::string& method = kMethod) {
    return CallWithNothing(OwnConnection(server.address(), credentials), method).error_code();
  }

  std::string StartError() const {
    try {
      CertificateFiles files(tls_);
    } catch (const LoadError& e) {
      return e.what();
    }
    return "";
  }

  const TempDir directory_;
  const CertificateAuthority authority_;
  TlsOptions tls_{.certificate = directory_.path() / "server.crt",
                  .key = directory_.path() / "server.key",
                  .client_authority = {}};
};

TEST_F(TlsTest, EveryMethodTakesTlsOfAKnownAuthority) {
  const TestServer server(Options());
  const CertificateAuthority other;
  const auto known = OwnConnection(server.address(), Trusting(authority_));
  for (const std::string& method : ListMethods(known)) {
    SCOPED_TRACE(method);
    EXPECT_NE(CallWithNothing(known, method).error_code(), StatusCode::UNAVAILABLE);
    EXPECT_EQ(Try(server, Trusting(other), method), StatusCode::UNAVAILABLE);
    EXPECT_EQ(Try(server, grpc::InsecureChannelCredentials(), method), StatusCode::UNAVAILABLE);
  }
}

TEST_F(TlsTest, EveryMethodTakesAClientsCertificate) {
  const CertificateAuthority clients, others;
  Authenticate(clients);
  const TestServer server(Options(clients.Issue("a client")));
  const auto known = OwnConnection(server.address(), Trusting(authority_, clients.Issue("b")));
  const auto none = Trusting(authority_);
  const auto unknown = Trusting(authority_, others.Issue("a client"));
  const auto expired = Trusting(authority_, clients.Issue("a client", "IP:127.0.0.1", /*days=*/0));
  for (const std::string& method : ListMethods(known)) {
    SCOPED_TRACE(method);
    EXPECT_NE(CallWithNothing(known, method).error_code(), StatusCode::UNAVAILABLE);
    for (const auto& credentials : {none, unknown, expired, grpc::InsecureChannelCredentials()}) {
      EXPECT_EQ(Try(server, credentials, method), StatusCode::UNAVAILABLE);
    }
  }
}

TEST_F(TlsTest, ATokenIsAskedForAsWell) {
  const std::filesystem::path tokens = directory_.path() / "tokens";
  // The hash of the token "abc".
  std::ofstream(tokens)
      << "a inference ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n";
  TestServerOptions options = Options();
  options.transport.access.tokens = tokens;
  const TestServer server(options);
  const auto channel = OwnConnection(server.address(), Trusting(authority_));
  EXPECT_EQ(CallWithNothing(channel, kMethod).error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(CallWithNothing(channel, kMethod, Bearer("abc")).ok());
}

TEST_F(TlsTest, AServersExpiredCertificateIsNotTrusted) {
  Install(authority_.Issue("server", "IP:127.0.0.1", /*days=*/0));
  const TestServer server(Options());
  EXPECT_EQ(Try(server, Trusting(authority_)), StatusCode::UNAVAILABLE);
}

TEST_F(TlsTest, CertificatesAreReadAgainAndStreamsContinue) {
  const CapturedLog log;
  const TestServer server(Options());
  GenerateCall stream(server.inference(), Greedy("", "a", kEndlessPositions - 10));
  ASSERT_TRUE(stream.Read());

  // Only one file changed, then a truncated file, then none: the previous ones stay in use.
  const CertificateAuthority next;
  const Identity renewed = next.Issue("server");
  Replace(tls_.certificate, renewed.certificate);
  EXPECT_EQ(Try(server, Trusting(next)), StatusCode::UNAVAILABLE);
  EXPECT_EQ(Try(server, Trusting(authority_)), StatusCode::OK);
  const std::string line =
      "error certificate not reloaded, the previous one stays in use: " + tls_.key.string() +
      ": is not the private key of the certificate in ";
  EXPECT_THAT(log.text(), HasSubstr(line));
  EXPECT_EQ(log.text().find(line), log.text().rfind(line));
  Replace(tls_.certificate, renewed.certificate.substr(0, renewed.certificate.size() / 2));
  EXPECT_EQ(Try(server, Trusting(authority_)), StatusCode::OK);
  std::filesystem::remove(tls_.certificate);
  EXPECT_EQ(Try(server, Trusting(authority_)), StatusCode::OK);

  Install(renewed);
  EXPECT_EQ(Try(server, Trusting(next)), StatusCode::OK);
  EXPECT_EQ(Try(server, Trusting(authority_)), StatusCode::UNAVAILABLE);
  EXPECT_THAT(log.text(), HasSubstr("info certificate reloaded from "));

  const size_t read = stream.tokens().size();
  while (stream.tokens().size() < read + 100) ASSERT_TRUE(stream.Read());
}

TEST_F(TlsTest, TheAuthorityOfClientsIsReadAgain) {
  const CertificateAuthority before, after;
  Authenticate(before);
  const TestServer server(Options(before.Issue("a client")));
  const auto old_client = Trusting(authority_, before.Issue("old"));
  const auto new_client = Trusting(authority_, after.Issue("new"));
  EXPECT_EQ(Try(server, old_client), StatusCode::OK);
  EXPECT_EQ(Try(server, new_client), StatusCode::UNAVAILABLE);
  Replace(*tls_.client_authority, after.certificate());
  EXPECT_EQ(Try(server, new_client), StatusCode::OK);
  EXPECT_EQ(Try(server, old_client), StatusCode::UNAVAILABLE);
}

TEST_F(TlsTest, FilesThatDoNotServeAreRefusedAtStart) {
  EXPECT_EQ(StartError(), "");
  const std::string certificate = tls_.certificate, key = tls_.key;
  const Identity own = authority_.Issue("server");
  Install({own.certificate, authority_.Issue("another").key});
  EXPECT_EQ(StartError(), key + ": is not the private key of the certificate in " + certificate);
  const Identity weak = authority_.Issue("server", "DNS:localhost", 2, "P-192");
  Install(weak);
  EXPECT_THAT(StartError(), HasSubstr(certificate + ": TLS refuses the certificate: "));
  Install({own.certificate + weak.certificate, own.key});
  EXPECT_THAT(StartError(), HasSubstr(certificate + ": TLS refuses the certificate: "));
  Install({own.certificate, "none"});
  EXPECT_THAT(StartError(), HasSubstr(key + ": cannot be read; allowed: a private key in PEM"));
  Install({"none", own.key});
  EXPECT_THAT(StartError(), HasSubstr(certificate + ": certificate 1 cannot be read"));
  Install({own.certificate + own.certificate.substr(0, own.certificate.size() / 2), own.key});
  EXPECT_THAT(StartError(), HasSubstr(certificate + ": certificate 2 cannot be read"));
  Install(own);
  tls_.client_authority = directory_.path() / "none";
  EXPECT_THAT(StartError(), HasSubstr(tls_.client_authority->string()));
  std::filesystem::remove(tls_.key);
  tls_.client_authority.reset();
  EXPECT_THAT(StartError(), HasSubstr(key));
}

}  // namespace
}  // namespace triptych::server::tls_test
