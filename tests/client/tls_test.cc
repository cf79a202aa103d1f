// Tests of `triptych` with TLS and tokens, run as a process against a fake server.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/client/fake_server.h"
#include "tests/client/run_cli.h"
#include "tests/support/certificates.h"
#include "tests/support/temp_dir.h"

namespace triptych::client::tls_test {
namespace {

using testing::HasSubstr;
using testing::Not;

class TlsTest : public testing::Test {
 protected:
  // Writes a file with `content`; returns its path.
  std::string File(const std::string& name, const std::string& content) const {
    const std::filesystem::path path = directory_.path() / name;
    WriteFile(path, content);
    return path.string();
  }
  // Credentials of a server with `identity`, which requires a client certificate if `mutual`.
  std::shared_ptr<grpc::ServerCredentials> Serve(const Identity& identity,
                                                 bool mutual = false) const {
    grpc::SslServerCredentialsOptions options(
        mutual ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
               : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
    options.pem_key_cert_pairs.push_back({identity.key, identity.certificate});
    options.pem_root_certs = authority_.certificate();
    return grpc::SslServerCredentials(options);
  }
  static void AnswerModels(FakeServer& server) {
    server.list_models = [](const auto&, auto*) { return grpc::Status::OK; };
  }
  static Process::Result Models(const std::string& address, Args flags,
                                const Process::Options& options = {}) {
    flags.push_back("models");
    return Process(CliCommand(address, flags), options).Wait();
  }

  const CertificateAuthority authority_{"authority"};
  const TempDir directory_;
  const std::string ca_ = File("ca.pem", authority_.certificate());
  const Identity loopback_ = authority_.Issue("loopback", "IP:127.0.0.1,DNS:localhost");
};

TEST_F(TlsTest, ChecksTheServersCertificate) {
  FakeServer server({.credentials = Serve(loopback_)});
  AnswerModels(server);
  EXPECT_EQ(Models(server.address(), {"--ca", ca_}).exit_code, 0);
  EXPECT_EQ(Models(server.address(), {"--tls", "--ca", ca_}).exit_code, 0);
  EXPECT_EQ(Models("localhost" + server.address().substr(9), {"--ca", ca_}).exit_code, 0);
  EXPECT_EQ(Models("dns:///localhost" + server.address().substr(9), {"--ca", ca_}).exit_code, 0);

  const std::string other = File("other.pem", CertificateAuthority("authority").certificate());
  for (const Args& flags : {Args{"--ca", other}, Args{"--tls"}}) {
    const auto result = Models(server.address(), flags);
    ExpectError(result, 1, "unavailable: TLS with " + server.address() + " failed: ");
    EXPECT_THAT(result.err, HasSubstr("(is its certificate signed by an authority in --ca, "));
  }
}

TEST_F(TlsTest, RefusesACertificateOutOfDate) {
  FakeServer server({.credentials = Serve(authority_.Issue("old", "IP:127.0.0.1", 0))});
  AnswerModels(server);
  ExpectError(Models(server.address(), {"--ca", ca_}), 1,
              "certificate verify failed (is its certificate signed by");
}

TEST_F(TlsTest, ChecksTheNameThatItIsGiven) {
  FakeServer server({.credentials = Serve(authority_.Issue("named", "DNS:triptych.example"))});
  AnswerModels(server);
  EXPECT_EQ(Models(server.address(), {"--ca", ca_, "--tls-name", "triptych.example"}).exit_code, 0);
  const std::string both = server.address() + "," + server.address();
  EXPECT_EQ(Models(both, {"--ca", ca_, "--tls-name", "triptych.example"}).exit_code, 0);
  ExpectError(Models(server.address(), {"--ca", ca_}), 1,
              "Peer name 127.0.0.1 is not in peer certificate (--tls-name gives a name to check");
  ExpectError(Models(both, {"--ca", ca_}), 2,
              "--tls-name: required for TLS with several addresses");
}

TEST_F(TlsTest, ShowsItsOwnCertificate) {
  FakeServer server({.credentials = Serve(loopback_, /*mutual=*/true)});
  AnswerModels(server);
  const auto flags = [&](const std::string& name, const Identity& identity) {
    return Args{"--ca",   ca_,
                "--cert", File(name + ".pem", identity.certificate),
                "--key",  File(name + ".key", identity.key)};
  };
  const Args good = flags("good", authority_.Issue("client", "DNS:client"));
  EXPECT_EQ(Models(server.address(), good).exit_code, 0);

  const std::string why = server.address() + " closed the connection (does it require TLS";
  ExpectError(Models(server.address(), {"--ca", ca_}), 1, why);
  const CertificateAuthority stranger("stranger");
  ExpectError(Models(server.address(), flags("bad", stranger.Issue("client", "DNS:client"))), 1,
              why);
}

TEST_F(TlsTest, TellsPlaintextFromTls) {
  FakeServer plain;
  FakeServer tls({.credentials = Serve(loopback_)});
  AnswerModels(plain);
  AnswerModels(tls);
  ExpectError(Models(plain.address(), {"--ca", ca_}), 1,
              plain.address() + " does not speak TLS (leave out --tls, --ca");
  ExpectError(Models(tls.address(), {}), 1,
              tls.address() + " closed the connection (does it require TLS: --tls or --ca");
}

TEST_F(TlsTest, SaysWhichFileCannotBeUsed) {
  const Identity one = authority_.Issue("one", "DNS:one");
  const std::string cert = File("one.pem", one.certificate);
  const std::string key = File("one.key", one.key);
  const std::string other_key = File("two.key", authority_.Issue("two", "DNS:two").key);
  const std::string junk = File("junk", "junk");
  const std::string cut = File("cut", one.certificate + one.certificate.substr(0, 200));
  const std::string empty = File("empty", "");
  struct Case {
    Args flags;
    std::string expected;
  };
  for (const auto& [flags, expected] : std::vector<Case>{
           {{"--ca", "/no/such"}, "--ca: cannot read '/no/such': No such file or directory"},
           {{"--ca", "/"}, "--ca: cannot read '/': Is a directory"},
           {{"--ca", junk}, "--ca: '" + junk + "': holds no certificate in PEM"},
           {{"--ca", empty}, "--ca: '" + empty + "': holds no certificate in PEM"},
           {{"--ca", key}, "--ca: '" + key + "': holds no certificate in PEM"},
           {{"--ca", cut}, "--ca: '" + cut + "': certificate 2 cannot be read"},
           {{"--cert", junk, "--key", key}, "--cert: '" + junk + "': holds no certificate in PEM"},
           {{"--cert", cert, "--key", junk}, "--key: '" + junk + "': holds no private key in PEM"},
           {{"--cert", cert, "--key", other_key},
            "--key: '" + other_key + "': is not the key of the first certificate"},
           {{"--cert", cert}, "--cert requires --key"},
           {{"--key", key}, "--key requires --cert"},
           {{"--tls-name", ""}, "--tls-name: must not be empty"}}) {
    SCOPED_TRACE(testing::PrintToString(flags));
    ExpectError(Models("127.0.0.1:1", flags), 2, expected);
  }
}

class TokenTest : public TlsTest {
 protected:
  // Records the authorization of each call; "" for none.
  void Watch(FakeServer& server) {
    server.on_call = [this](const grpc::CallbackServerContext& context) {
      const std::lock_guard lock(mutex_);
      const auto found = context.client_metadata().find("authorization");
      seen_.push_back(found == context.client_metadata().end()
                          ? ""
                          : std::string(found->second.data(), found->second.size()));
    };
  }
  std::vector<std::string> TakeSeen() {
    const std::lock_guard lock(mutex_);
    return std::exchange(seen_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> seen_;  // Guarded by mutex_.
};

TEST_F(TokenTest, GoesWithEveryCall) {
  FakeServer server;
  Watch(server);
  for (const Args& args :
       {Args{"generate", "x"}, Args{"compare", "x"}, Args{"score", "x"}, Args{"models"}, Args{"kv"},
        Args{"kv", "--watch"}, Args{"kv", "--sequences"}}) {
    SCOPED_TRACE(testing::PrintToString(args));
    Process(CliCommand(server.address(), args), {.environment = {"TRIPTYCH_TOKEN=s3cret"}}).Wait();
    EXPECT_THAT(TakeSeen(), testing::ElementsAre("Bearer s3cret"));
  }
}

TEST_F(TokenTest, IsTheFilesOrTheVariables) {
  FakeServer plain;
  FakeServer tls({.credentials = Serve(loopback_)});
  const std::string file = File("token", "from-file\n");
  for (const auto& [server, flags] :
       {std::pair(&plain, Args{}), std::pair(&tls, Args{"--ca", ca_})}) {
    Watch(*server);
    Models(server->address(), flags);
    EXPECT_THAT(TakeSeen(), testing::ElementsAre(""));
    Models(server->address(), flags, {.environment = {"TRIPTYCH_TOKEN=from-variable"}});
    EXPECT_THAT(TakeSeen(), testing::ElementsAre("Bearer from-variable"));
    Args with_file = flags;
    with_file.insert(with_file.end(), {"--token-file", file});
    Models(server->address(), with_file, {.environment = {"TRIPTYCH_TOKEN=from-variable"}});
    EXPECT_THAT(TakeSeen(), testing::ElementsAre("Bearer from-file"));
  }
}

TEST_F(TokenTest, IsNeverShown) {
  const auto refused = [](const Process::Result& result, const std::string& part) {
    ExpectError(result, 2, part);
    EXPECT_THAT(result.err, Not(HasSubstr("s3cret")));
  };
  const std::string what = "must hold a token: one line of 1 to 4096 visible ASCII characters";
  for (const std::string& content : {std::string(), std::string("\n"), std::string("s3cret s3cret"),
                                     std::string("s3cret\ns3cret"), std::string("s3cret\xff"),
                                     std::string("s3cret\0", 7), std::string(4097, 'a')}) {
    const std::string file = File("token", content);
    refused(Models("127.0.0.1:1", {"--token-file", file}), "--token-file: '" + file + "': " + what);
  }
  refused(Models("127.0.0.1:1", {}, {.environment = {"TRIPTYCH_TOKEN=s3cret s3cret"}}),
          "TRIPTYCH_TOKEN: " + what);
  refused(Models("127.0.0.1:1", {"--token-file", "/no/such"}),
          "--token-file: cannot read '/no/such'");

  FakeServer server;
  server.list_models = [](const auto&, auto*) {
    return grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "unknown token");
  };
  const auto result = Models(server.address(), {}, {.environment = {"TRIPTYCH_TOKEN=s3cret"}});
  ExpectError(result, 1,
              "unauthenticated: unknown token (TRIPTYCH_TOKEN or --token-file gives a token)");
  EXPECT_THAT(result.err, Not(HasSubstr("s3cret")));
}

}  // namespace
}  // namespace triptych::client::tls_test
