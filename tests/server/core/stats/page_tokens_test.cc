#include "server/core/stats/page_tokens.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace triptych::server::page_tokens_test {
namespace {

TEST(PageTokensTest, AreValidOnlyForTheirQuery) {
  const PageTokens tokens;
  for (const uint64_t position :
       {uint64_t{1}, uint64_t{1000}, std::numeric_limits<uint64_t>::max()}) {
    const std::string token = tokens.Make("mha", position);
    EXPECT_EQ(tokens.Read("mha", token).value(), position);
    EXPECT_FALSE(tokens.Read("gqa", token).ok());
    EXPECT_FALSE(tokens.Read("", token).ok());
    EXPECT_FALSE(PageTokens().Read("mha", token).ok()) << "of another process";
  }
  EXPECT_EQ(tokens.Read("mha", "").value(), 0u);
}

TEST(PageTokensTest, RefuseWhatTheyDidNotMake) {
  const PageTokens tokens;
  const std::string good = tokens.Make("mha", 17);
  for (const std::string& token :
       {std::string("17"), std::string("x"), std::string("-1"), good + "0", "0" + good, good + " ",
        good.substr(0, good.size() - 1), std::string(16, '0'), std::string(100'000, 'f')}) {
    const Result<uint64_t> position = tokens.Read("mha", token);
    ASSERT_FALSE(position.ok()) << token;
    EXPECT_EQ(position.error().field, "page_token");
    EXPECT_LT(position.error().Message().size(), 200u);
  }
}

}  // namespace
}  // namespace triptych::server::page_tokens_test
