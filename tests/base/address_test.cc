#include "engine/base/address.h"

#include <gtest/gtest.h>

#include <string>

namespace triptych::address_test {
namespace {

TEST(AddressTest, HostAndPort) {
  struct Case {
    std::string text, host;
    int port;
  };
  for (const auto& [text, host, port] :
       {Case{"localhost:50051", "localhost", 50051}, Case{"0.0.0.0:0", "0.0.0.0", 0},
        Case{"[::1]:65535", "[::1]", 65535}}) {
    const auto address = ParseAddress(text);
    ASSERT_TRUE(address.has_value()) << text;
    EXPECT_EQ(address->host, host);
    EXPECT_EQ(address->port, port);
  }
}

TEST(AddressTest, NothingElse) {
  for (const std::string text :
       {"", ":", "localhost", "localhost:", "localhost:-1", "localhost:65536", "localhost:https",
        "localhost: 1", ":50051", "::1:50051", "[::1]", "::1", "dns:///localhost:50051"}) {
    EXPECT_FALSE(ParseAddress(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace triptych::address_test
