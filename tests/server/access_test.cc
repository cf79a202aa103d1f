// Tests of authentication and scopes.
#include <fstream>
#include <map>
#include <set>

#include "server/grpc/credentials.h"
#include "tests/server/any_method.h"
#include "tests/server/captured_log.h"
#include "tests/server/test_server.h"
#include "tests/server/token_lines.h"

namespace triptych::server::access_test {
namespace {

using grpc::StatusCode;
using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

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

  const TempDir directory_;
  const std::filesystem::path file_ = directory_.path() / "tokens";
};

// The code of an empty message to a method that the caller may call. Embed is never served, nor
// SubscribeKvEvents without --kv-events.
auto IsOfAdmittedCall() {
  return AnyOf(StatusCode::OK, StatusCode::INVALID_ARGUMENT, StatusCode::UNIMPLEMENTED);
}

// Scopes that each method requires. A new method fails the test until it is added here.
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
      {"/vllm.grpc.engine.VllmEngine/Generate", inference},
      {"/vllm.grpc.engine.VllmEngine/Embed", inference},
      {"/vllm.grpc.engine.VllmEngine/HealthCheck", inference},
      {"/vllm.grpc.engine.VllmEngine/Abort", inference},
      {"/vllm.grpc.engine.VllmEngine/GetModelInfo", inference},
      {"/vllm.grpc.engine.VllmEngine/GetServerInfo", inference},
      {"/vllm.grpc.engine.VllmEngine/GetLoads", statistics},
      {"/vllm.grpc.engine.VllmEngine/GetTokenizer", inference},
      {"/vllm.grpc.engine.VllmEngine/SubscribeKvEvents", {"admin"}},
      {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
       {"inference", "statistics", "admin"}},
  };
  return scopes;
}

TEST_F(AccessTest, EveryMethodAsksForItsScope) {
  std::string tokens;
  for (const std::string scope : {"inference", "statistics", "admin"}) {
    tokens += TokenLine(scope, scope, "token of " + scope);
  }
  WriteTokens(tokens);
  const TestServer server(WithTokens());
  const auto channel = OwnConnection(server.address());
  const std::vector<std::string> methods = ListMethods(channel, Bearer("token of admin"));
  EXPECT_GT(methods.size(), ScopesOfMethods().size());  // health needs no scope
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
    const std::string hash = TokenHash("token of admin");
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
        EXPECT_THAT(status.error_code(), IsOfAdmittedCall())
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
    EXPECT_THAT(CallWithNothing(channel, method).error_code(), IsOfAdmittedCall()) << method;
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

TEST_F(AccessTest, TokensAreReadAgainWhenTheFileChanges) {
  const CapturedLog log;
  WriteTokens(TokenLine("old", "inference", "first"));
  const TestServer server(WithTokens());
  const auto channel = OwnConnection(server.address());
  const auto code = [&](const std::string& token) {
    return CallWithNothing(channel, "/triptych.v1.ModelService/ListModels", Bearer(token))
        .error_code();
  };
  EXPECT_EQ(code("first"), StatusCode::OK);

  WriteTokens(TokenLine("new", "inference", "second"));
  EXPECT_EQ(code("first"), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(code("second"), StatusCode::OK);

  // A broken file, or none, is logged once, and the previous tokens stay.
  WriteTokens(TokenLine("third", "inference", "third") + "oops\n");
  EXPECT_EQ(code("third"), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(code("second"), StatusCode::OK);
  const std::string line =
      "error tokens not reloaded, the previous ones stay in use: " + file_.string() + " line 2: ";
  EXPECT_THAT(log.text(), HasSubstr(line));
  EXPECT_EQ(log.text().find(line), log.text().rfind(line));
  std::filesystem::remove(file_);
  EXPECT_EQ(code("second"), StatusCode::OK);

  WriteTokens(TokenLine("third", "inference", "third"));
  EXPECT_EQ(code("second"), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(code("third"), StatusCode::OK);
  for (const char* token : {"first", "second"}) EXPECT_THAT(log.text(), Not(HasSubstr(token)));
}

TEST(PeerAddressTest, IsWithoutThePort) {
  EXPECT_EQ(PeerAddress("ipv4:10.1.2.3:4567"), "10.1.2.3");
  EXPECT_EQ(PeerAddress("ipv6:%5B2001:db8::1%5D:4567"), "2001:db8::1");
  EXPECT_EQ(PeerAddress("ipv6:[::1]:4567"), "::1");
  EXPECT_EQ(PeerAddress("unix:/tmp/socket"), "unix");
  EXPECT_THAT(PeerAddress(""), IsEmpty());
}

}  // namespace
}  // namespace triptych::server::access_test
