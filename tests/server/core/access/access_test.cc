// Tests of token files and of callers on this machine.
#include "server/core/access/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/base/error.h"
#include "tests/server/token_lines.h"
#include "tests/support/temp_dir.h"

namespace triptych::server::access_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class TokenFileTest : public testing::Test {
 protected:
  void WriteTokens(const std::string& text) const {
    std::ofstream(Beside()) << text;
    std::filesystem::rename(Beside(), file_);
  }
  std::filesystem::path Beside() const { return file_.string() + ".new"; }

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

TEST_F(TokenFileTest, BadTokenFilesAreRefusedAtStart) {
  const std::string name = file_.string();
  EXPECT_THAT(StartError(), HasSubstr(name));
  WriteTokens("");
  EXPECT_EQ(StartError(), name + ": no tokens; allowed: at least one");
  WriteTokens("# nobody\n\n");
  EXPECT_THAT(StartError(), HasSubstr("no tokens; allowed"));
  WriteTokens("# all\n" + TokenLine("a", "inference", "1") + "b inference\n");
  EXPECT_EQ(StartError(), name + " line 3: 2 words; allowed: NAME SCOPE[,SCOPE...] SHA256HEX");
  WriteTokens(TokenLine("a!", "inference", "1"));
  EXPECT_THAT(StartError(), HasSubstr("the name is \"a!\"; allowed: "));
  WriteTokens(TokenLine("a", "inference,root", "1"));
  EXPECT_THAT(StartError(),
              HasSubstr("\"root\" is not a scope; allowed: inference, statistics, admin"));
  WriteTokens(TokenLine("a", "inference,", "1"));
  EXPECT_THAT(StartError(), HasSubstr("\"\" is not a scope"));
  // A token instead of its hash, by mistake: the error does not repeat it.
  WriteTokens("a inference my-secret\n");
  EXPECT_THAT(StartError(), AllOf(HasSubstr("64 hexadecimal digits"), Not(HasSubstr("my-secret"))));
  WriteTokens("a inference " + std::string(63, '0') + "g\n");
  EXPECT_THAT(StartError(), HasSubstr("64 hexadecimal digits"));
  WriteTokens(TokenLine("a", "inference", "1") + TokenLine("b", "admin", "1"));
  EXPECT_THAT(StartError(),
              HasSubstr("line 2: the token of b is also on another line; allowed: once"));
  WriteTokens("\t a  inference,statistics\t" + TokenHash("1") + "\r\n\n#\n" +
              TokenLine("a", "admin", "2"));
  EXPECT_EQ(StartError(), "");
}

Credentials From(const std::string& address, std::vector<std::string> authorization = {}) {
  return {.authorization = std::move(authorization), .address = address};
}

TEST_F(TokenFileTest, SaysWhoCalls) {
  WriteTokens(TokenLine("alice", "inference", "a"));
  const Access access({.tokens = file_});
  const Result<Caller> alice = access.Authorize(From("127.0.0.1", {"Bearer a"}), Scope::kInference);
  ASSERT_TRUE(alice.ok());
  EXPECT_EQ(alice.value().client, "alice");
  EXPECT_EQ(access.Authorize(From("127.0.0.1", {"Bearer a"}), Scope::kAdmin).error().code,
            ErrorCode::kPermissionDenied);
  for (const auto& wrong :
       std::vector<std::vector<std::string>>{{}, {"Bearer b"}, {"a"}, {"Bearer a", "Bearer a"}}) {
    EXPECT_EQ(access.Authenticate(From("127.0.0.1", wrong)).error().code,
              ErrorCode::kUnauthenticated);
  }
}

TEST(AccessTest, WithoutTokensTheAddressSaysWhoCalls) {
  const Access access({});
  EXPECT_TRUE(access.Authorize(From("127.0.0.1"), Scope::kAdmin).ok());
  EXPECT_FALSE(access.Authorize(From("10.0.0.1"), Scope::kAdmin).ok());
  Credentials certified = From("10.0.0.1");
  certified.common_name = "bob";
  EXPECT_EQ(access.Authorize(certified, Scope::kInference).value().client, "bob");
}

TEST(AddressTest, AClientHasOneAddressInBothFamilies) {
  EXPECT_EQ(Unmapped("::ffff:192.0.2.1"), "192.0.2.1");
  for (const char* same : {"192.0.2.1", "::1", "2001:db8::1", "::ffff:1", "unix", ""}) {
    EXPECT_EQ(Unmapped(same), same);
  }
  const Access access(AccessOptions{});
  const Credentials mapped{.authorization = {}, .address = "::ffff:192.0.2.1"};
  EXPECT_EQ(access.Authenticate(mapped).value().client, "192.0.2.1");
}

TEST(LoopbackTest, KnowsThisMachine) {
  for (const char* own : {"127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "unix"}) {
    EXPECT_TRUE(IsLoopback(own)) << own;
  }
  for (const char* other : {"10.0.0.1", "::ffff:10.0.0.1", "128.127.0.1", "::2", ""}) {
    EXPECT_FALSE(IsLoopback(other)) << other;
  }
}

}  // namespace
}  // namespace triptych::server::access_test
