#include "engine/base/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <vector>

namespace triptych::environment_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class EnvironmentTest : public testing::Test {
 protected:
  ~EnvironmentTest() override { unsetenv(kVariable); }

  // The arguments, with --colour from the environment if it is set.
  static std::vector<std::string> WithColour(std::vector<std::string> arguments) {
    AddFlagFromEnvironment("--colour", kVariable, arguments);
    return arguments;
  }

  static constexpr char kVariable[] = "TRIPTYCH_TEST_COLOUR";
};

TEST_F(EnvironmentTest, AVariableIsAFlagBeforeTheOthers) {
  EXPECT_THAT(WithColour({}), IsEmpty());
  setenv(kVariable, "red blue", 1);
  EXPECT_THAT(WithColour({"paint", "--coloured"}),
              ElementsAre("--colour=red blue", "paint", "--coloured"));
  setenv(kVariable, "", 1);  // counts as unset
  EXPECT_THAT(WithColour({"paint"}), ElementsAre("paint"));
}

TEST_F(EnvironmentTest, AFlagGoesFirst) {
  setenv(kVariable, "red", 1);
  EXPECT_THAT(WithColour({"--colour", "blue"}), ElementsAre("--colour", "blue"));
  EXPECT_THAT(WithColour({"--colour=blue"}), ElementsAre("--colour=blue"));
}

}  // namespace
}  // namespace triptych::environment_test
