// Tests of request targets.
#include "server/http/request_target.h"

#include <gtest/gtest.h>

#include "server/core/percent_decode.h"

namespace triptych::server::request_target_test {
namespace {

using Query = std::map<std::string, std::string>;

TEST(RequestTargetTest, PathAndQuery) {
  const RequestTarget target = ParseTarget("/v1%2Fa?x=1&y=a%20b+c%2B&z&=").value();
  EXPECT_EQ(target.authority, "");
  EXPECT_EQ(target.path, "/v1%2Fa");
  EXPECT_EQ(target.query, (Query{{"x", "1"}, {"y", "a b c+"}, {"z", ""}, {"", ""}}));
  EXPECT_EQ(ParseTarget("*").value().path, "*");
  EXPECT_EQ(ParseTarget("/?").value().path, "/");
}

TEST(RequestTargetTest, MayNameItsHost) {
  const RequestTarget target = ParseTarget("http://a:80/v1/models?x=1").value();
  EXPECT_EQ(target.authority, "a:80");
  EXPECT_EQ(target.path, "/v1/models");
  EXPECT_EQ(target.query, (Query{{"x", "1"}}));
  EXPECT_EQ(ParseTarget("HTTPS://a").value().authority, "a");
  EXPECT_EQ(ParseTarget("http://a?x").value().authority, "a");
}

TEST(RequestTargetTest, AParameterIsNamedOnce) {
  EXPECT_EQ(ParseTarget("/?x=1&y=2&%78=1").error().Message(), "x is repeated; allowed: once");
}

TEST(RequestTargetTest, DecodesEscapes) {
  EXPECT_EQ(PercentDecode("a%20b%2fc%C3%A9"), "a b/c\xC3\xA9");
  for (const std::string literal : {"%", "%4", "%4g", "a%", "+"}) {
    EXPECT_EQ(PercentDecode(literal), literal);
  }
}

}  // namespace
}  // namespace triptych::server::request_target_test
