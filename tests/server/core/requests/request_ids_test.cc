#include "server/core/requests/request_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace triptych::server::request_ids_test {
namespace {

TEST(RequestIdsTest, CountUpBehindAPrefixOfTheProcess) {
  RequestIds ids;
  const RequestIds::Id first = ids.Take(1);
  const RequestIds::Id four = ids.Take(4);
  const RequestIds::Id last = ids.Take(1);
  EXPECT_EQ(first.number, 1u);
  EXPECT_EQ(four.number, 2u);
  EXPECT_EQ(last.number, 6u);
  EXPECT_THAT(first.text, testing::MatchesRegex("[0-9a-f]{8}-1"));
  const std::string prefix = first.text.substr(0, 9);
  EXPECT_EQ(last.text, prefix + "6");
  EXPECT_NE(RequestIds().Take(1).text, first.text);
}

}  // namespace
}  // namespace triptych::server::request_ids_test
