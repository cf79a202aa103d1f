// Who is let in to what.
#include "server/grpc/access.h"

#include <openssl/sha.h>

#include <fstream>
#include <map>
#include <set>

#include "engine/base/error.h"
#include "tests/server/any_method.h"
#include "tests/server/captured_log.h"
#include "tests/server/test_server.h"

namespace triptych {
namespace {

using grpc::StatusCode;
using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::string Sha256(const std::string& token) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest);
  std::string text;
  for (const unsigned char byte : digest) {
    const char* const digits = "0123456789abcdef";
    text += {digits[byte >> 4], digits[byte & 15]};
  }
  return text;
}

std::string Line(const std::string& name, const std::string& scopes, const std::string& token) {
  return name + " " + scopes + " " + Sha256(token) + "\n";
}

class AccessTest : public testing::Test {
 protected:
  void WriteTokens(const std::string& text) const {
    std::ofstream(Beside()) << text;
    std::filesystem::rename(Beside(), file_);
  }
  std::filesystem::path Beside() const { return file_.string() + ".new"; }

  TestServerOptions WithTokens() const {
    TestServerOptions options{.models = {EndlessModel()}};
    options.transport.access.tokens = file_;
    return options;
  }

  std::string StartError() const {
    try {
      const Access access({.tokens = file_});
    } catch (const LoadError& e) {
      return e.what();
    }
    return "";
  }

  const TempDir directory_;
  const std::filesystem::path file_ = directory_.path() / "tokens";
};

// What each method takes. One that is not here fails the test: it is to be thought about.
const std::map<std::string, std::set<std::string>>& ScopesOfMethods() {
  static const std::set<std::string> inference = {"inference", "admin"};
  static const std::set<std::string> statistics = {"statistics", "admin"};
  static const std::map<std::string, std::set<std::string>> scopes = {
      {"/triptych.v1.InferenceService/Generate", inference},
      {"/triptych.v1.InferenceService/Score", inference},
      {"/triptych.v1.InferenceService/Tokenize", inference},
      {"/triptych.v1.InferenceService/Detokenize", inference},
      {"/triptych.v1.ModelService/ListModels", inference},
      {"/triptych.v1.ModelService/GetModel", inference},
      {"/triptych.v1.KvCacheService/ListSequences", inference},
      {"/triptych.v1.KvCacheService/GetKvCacheStats", statistics},
      {"/triptych.v1.KvCacheService/WatchKvCacheStats", statistics},
      {"/triptych.v1.AdminService/Drain", {"admin"}},
      {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
       {"inference", "statistics", "admin"}},
  };
  return scopes;
}

TEST_F(AccessTest, EveryMethodAsksForItsScope) {
  std::string tokens;
  for (const std::string scope : {"inference", "statistics", "admin"}) {
    tokens += Line(scope, scope, "token of " + scope);
  }
  WriteTokens(tokens);
  const TestServer server(WithTokens());
  const auto channel = OwnConnection(server.address());
  const std::vector<std::string> methods = ListMethods(channel, Bearer("token of admin"));
  EXPECT_GT(methods.size(), ScopesOfMethods().size());  // health, which needs nothing
  for (const std::string& method : methods) {
    SCOPED_TRACE(method);
    if (method.starts_with("/grpc.health.v1.")) {
      EXPECT_TRUE(CallWithNothing(channel, method).ok());
      continue;
    }
    const auto scopes = ScopesOfMethods().find(method);
    if (scopes == ScopesOfMethods().end()) {
      ADD_FAILURE() << "is not in the table of this test";
      continue;
    }
    const std::string hash = Sha256("token of admin");
    for (const Headers& wrong :
         std::vector<Headers>{{},
                              Bearer("token"),
                              Bearer(hash),
                              {{"authorization", "token of admin"}},
                              {{"authorization", "Basic token of admin"}},
                              {{"authorization", "Bearer token of admin"},
                               {"authorization", "Bearer token of admin"}}}) {
      EXPECT_TRUE(IsError(CallWithNothing(channel, method, wrong), StatusCode::UNAUTHENTICATED,
                          "UNAUTHENTICATED"));
    }
    for (const std::string scope : {"inference", "statistics", "admin"}) {
      const grpc::Status status = CallWithNothing(channel, method, Bearer("token of " + scope));
      if (scopes->second.contains(scope)) {
        EXPECT_THAT(status.error_code(), AnyOf(StatusCode::OK, StatusCode::INVALID_ARGUMENT))
            << scope << ": " << status.error_message();
      } else {
        EXPECT_TRUE(IsError(status, StatusCode::PERMISSION_DENIED, "SCOPE_MISSING")) << scope;
      }
    }
  }
}

TEST_F(AccessTest, WithoutTokensThisMachineMayDoEverything) {
  const TestServer server({.models = {EndlessModel()}});
  const auto channel = OwnConnection(server.address());
  for (const std::string& method : ListMethods(channel)) {
    EXPECT_THAT(CallWithNothing(channel, method).error_code(),
                AnyOf(StatusCode::OK, StatusCode::INVALID_ARGUMENT))
        << method;
  }
}

TEST_F(AccessTest, ReflectionCanBeOff) {
  TestServerOptions options{.models = {EndlessModel()}};
  options.transport.reflection = false;
  const TestServer server(options);
  EXPECT_EQ(CallWithNothing(OwnConnection(server.address()),
                            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
                .error_code(),
            StatusCode::UNIMPLEMENTED);
}

TEST_F(AccessTest, TokensAreReadAnewWhenTheFileChanges) {
  const CapturedLog log;
  WriteTokens(Line("old", "inference", "first"));
  const TestServer server(WithTokens());
  const auto channel = OwnConnection(server.address());
  const auto code = [&](const std::string& token) {
    return CallWithNothing(channel, "/triptych.v1.ModelService/ListModels", Bearer(token))
        .error_code();
  };
  EXPECT_EQ(code("first"), StatusCode::OK);

  WriteTokens(Line("new", "inference", "second"));
  EXPECT_EQ(code("first"), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(code("second"), StatusCode::OK);

  // A broken file, and none: said once, and the list stays.
  WriteTokens(Line("third", "inference", "third") + "oops\n");
  EXPECT_EQ(code("third"), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(code("second"), StatusCode::OK);
  const std::string line = "error tokens stay as they were: " + file_.string() + " line 2: ";
  EXPECT_THAT(log.text(), HasSubstr(line));
  EXPECT_EQ(log.text().find(line), log.text().rfind(line));
  std::filesystem::remove(file_);
  EXPECT_EQ(code("second"), StatusCode::OK);

  WriteTokens(Line("third", "inference", "third"));
  EXPECT_EQ(code("second"), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(code("third"), StatusCode::OK);
  for (const char* token : {"first", "second"}) EXPECT_THAT(log.text(), Not(HasSubstr(token)));
}

TEST_F(AccessTest, BadTokenFilesAreRefusedAtStart) {
  const std::string name = file_.string();
  EXPECT_THAT(StartError(), HasSubstr(name));
  WriteTokens("");
  EXPECT_EQ(StartError(), name + ": holds no token; allowed: at least one");
  WriteTokens("# nobody\n\n");
  EXPECT_THAT(StartError(), HasSubstr("holds no token"));
  WriteTokens("# all\n" + Line("a", "inference", "1") + "b inference\n");
  EXPECT_EQ(StartError(), name + " line 3: 2 words; allowed: NAME SCOPE[,SCOPE...] SHA256HEX");
  WriteTokens(Line("a!", "inference", "1"));
  EXPECT_THAT(StartError(), HasSubstr("the name is \"a!\"; allowed: "));
  WriteTokens(Line("a", "inference,root", "1"));
  EXPECT_THAT(StartError(),
              HasSubstr("\"root\" is not a scope; allowed: inference, statistics, admin"));
  WriteTokens(Line("a", "inference,", "1"));
  EXPECT_THAT(StartError(), HasSubstr("\"\" is not a scope"));
  // The token itself, by mistake: it is not repeated.
  WriteTokens("a inference my-secret\n");
  EXPECT_THAT(StartError(), AllOf(HasSubstr("64 hexadecimal digits"), Not(HasSubstr("my-secret"))));
  WriteTokens("a inference " + std::string(63, '0') + "g\n");
  EXPECT_THAT(StartError(), HasSubstr("64 hexadecimal digits"));
  WriteTokens(Line("a", "inference", "1") + Line("b", "admin", "1"));
  EXPECT_THAT(StartError(), HasSubstr("line 2: the token of b is another line's as well"));
  WriteTokens("\t a  inference,statistics\t" + Sha256("1") + "\r\n\n#\n" + Line("a", "admin", "2"));
  EXPECT_EQ(StartError(), "");
}

TEST(PeerAddressTest, IsWithoutThePort) {
  EXPECT_EQ(PeerAddress("ipv4:10.1.2.3:4567"), "10.1.2.3");
  EXPECT_EQ(PeerAddress("ipv6:%5B2001:db8::1%5D:4567"), "2001:db8::1");
  EXPECT_EQ(PeerAddress("ipv6:[::1]:4567"), "::1");
  EXPECT_EQ(PeerAddress("unix:/tmp/socket"), "unix");
  EXPECT_THAT(PeerAddress(""), IsEmpty());
}

TEST(PeerAddressTest, KnowsThisMachine) {
  for (const char* own : {"127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "unix"}) {
    EXPECT_TRUE(IsLoopback(own)) << own;
  }
  for (const char* other : {"10.0.0.1", "::ffff:10.0.0.1", "128.127.0.1", "::2", ""}) {
    EXPECT_FALSE(IsLoopback(other)) << other;
  }
}

}  // namespace
}  // namespace triptych
