#ifndef TRIPTYCH_TESTS_CLIENT_RUN_CLI_H_
#define TRIPTYCH_TESTS_CLIENT_RUN_CLI_H_

#include <string>
#include <vector>

#include "tests/support/process.h"

namespace triptych::client {

using Args = std::vector<std::string>;

std::vector<std::string> Lines(const std::string& text);
size_t CharacterCount(const std::string& text);

// `triptych` with `args`, for the server at `address`.
Args CliCommand(const std::string& address, Args args);

// Nothing on standard output, and one line on standard error that holds `part`.
void ExpectError(const Process::Result& result, int exit_code, const std::string& part);

}  // namespace triptych::client

#endif  // TRIPTYCH_TESTS_CLIENT_RUN_CLI_H_
