#include "server/core/requests/trace_parent.h"

#include <gtest/gtest.h>

#include <string>

namespace triptych::server::trace_parent_test {
namespace {

const std::string kTrace = "0af7651916cd43dd8448eb211c80319c";
const std::string kParent = "b7ad6b7169203331";
const std::string kWhole = "00-" + kTrace + "-" + kParent + "-01";

TEST(TraceParentTest, IsTakenAsItIs) {
  EXPECT_EQ(TraceParent({kWhole}), kWhole);
  EXPECT_EQ(TraceParent({"00-" + kTrace + "-" + kParent + "-ff"}).substr(53), "ff");
}

TEST(TraceParentTest, KnownFieldsOfALaterVersion) {
  const std::string later = "cc" + kWhole.substr(2);
  EXPECT_EQ(TraceParent({later}), later);
  EXPECT_EQ(TraceParent({later + "-what the future will be like"}), later);
  EXPECT_EQ(TraceParent({later + "."}), "");
  EXPECT_EQ(TraceParent({kWhole + "-more"}), "") << "version 0 has no more";
}

TEST(TraceParentTest, AnInvalidHeaderIsIgnored) {
  EXPECT_EQ(TraceParent({}), "");
  EXPECT_EQ(TraceParent({kWhole, kWhole}), "") << "two";
  const std::string zeros(32, '0');
  for (const std::string& bad :
       {std::string(), std::string("-"), kWhole.substr(1), kWhole.substr(0, 54), kWhole + "0",
        " " + kWhole, "ff" + kWhole.substr(2), "0x" + kWhole.substr(2), "00_" + kWhole.substr(3),
        "00-" + zeros + "-" + kParent + "-01", "00-" + kTrace + "-" + zeros.substr(16) + "-01",
        "00-" + kTrace + "-" + kParent + "-0g", "00-" + kTrace + "-" + kParent + "_01",
        "00-" + kTrace + "_" + kParent + "-01",
        "00-0AF7651916CD43DD8448EB211C80319C-" + kParent + "-01",
        "00-" + kTrace + "-" + kParent.substr(1) + "\n-01",
        "00-" + kTrace.substr(1) + "\xff-" + kParent + "-01", std::string(1 << 16, '0'),
        std::string(55, '\0')}) {
    EXPECT_EQ(TraceParent({bad}), "") << bad.substr(0, 100);
  }
}

}  // namespace
}  // namespace triptych::server::trace_parent_test
