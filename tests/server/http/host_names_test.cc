// Tests of the accepted Host header values.
#include "server/http/host_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace triptych::server::host_names_test {
namespace {

TransportOptions Listening(const std::string& http) {
  TransportOptions options;
  options.http = http;
  return options;
}

TEST(HostNamesTest, WithoutTokensOnlyNamesThatNoSiteCanHave) {
  const HostNames names(Listening("127.0.0.1:8080"));
  for (const std::string host : {"localhost", "LocalHost:8080", "localhost.:80", "127.0.0.1",
                                 "127.0.0.1:1", "192.0.2.1:80", "[::1]", "[::1]:8080"}) {
    EXPECT_TRUE(names.Contains(host)) << host;
  }
  for (const std::string host :
       {"", ":80", "evil.example", "evil.example:8080", "localhost.evil.example",
        "127.0.0.1.evil.example", "127.1", "::1", "[::1", "localhost:1:2", ".", "localhost.."}) {
    EXPECT_FALSE(names.Contains(host)) << host;
  }
}

std::string OwnName() {
  char name[256] = {};
  EXPECT_EQ(gethostname(name, sizeof(name) - 1), 0);
  return name;
}

TEST(HostNamesTest, NamesOfThisMachineAndPrivateDomains) {
  const HostNames names(Listening("127.0.0.1:8080"));
  for (const std::string& host :
       std::vector<std::string>{OwnName(), OwnName() + ".local:8080", "host.docker.internal:8080",
                                "App.Localhost", "a.internal."}) {
    EXPECT_TRUE(names.Contains(host)) << host;
  }
  for (const std::string host :
       {".internal", "internal", "evil.local", "a.internal.example", "notlocalhost"}) {
    EXPECT_FALSE(names.Contains(host)) << host;
  }
}

TEST(HostNamesTest, NamesThatItIsGiven) {
  TransportOptions options = Listening("models.example:8080");
  options.http_hosts = {"server", "Other.example"};
  const HostNames names(options);
  for (const std::string host : {"models.example", "server:8080", "other.example", "localhost"}) {
    EXPECT_TRUE(names.Contains(host)) << host;
  }
  EXPECT_FALSE(names.Contains("evil.example"));
  EXPECT_THAT(names.Allowed(), testing::HasSubstr("server, Other.example"));
  const std::string own = OwnName();
  EXPECT_EQ(HostNames(Listening("LocalHost:80")).Allowed(),
            "IP addresses, names in .localhost and .internal, localhost, " + own + ", " + own +
                ".local (more with --http-hosts)");
}

TEST(HostNamesTest, AnyWhereItIsKnownWhoCalls) {
  TransportOptions options = Listening("0.0.0.0:8080");
  options.access.insecure = true;
  EXPECT_FALSE(HostNames(options).Contains("a.example"));
  options.tls.emplace();
  EXPECT_FALSE(HostNames(options).Contains("a.example"));
  options.tls->client_authority = "clients.crt";
  EXPECT_TRUE(HostNames(options).Contains("a.example"));
  options.tls.reset();
  options.access.tokens = "tokens";
  EXPECT_TRUE(HostNames(options).Contains("a.example"));
}

}  // namespace
}  // namespace triptych::server::host_names_test
