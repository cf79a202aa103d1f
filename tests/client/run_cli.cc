#include "tests/client/run_cli.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>

namespace triptych::client {

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

size_t CharacterCount(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

Args CliCommand(const std::string& address, Args args) {
  args.insert(args.begin(), {TRIPTYCH_CLI, "--server", address});
  return args;
}

void ExpectError(const Process::Result& result, int exit_code, const std::string& part) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_THAT(result.out, testing::IsEmpty());
  EXPECT_THAT(result.err, testing::StartsWith("triptych: "));
  EXPECT_THAT(result.err, testing::HasSubstr(part));
  EXPECT_EQ(Lines(result.err).size(), 1u) << result.err;
}

}  // namespace triptych::client
