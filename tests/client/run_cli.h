// Command line of the `triptych` program, and checks of its errors.
#ifndef TRIPTYCH_TESTS_CLIENT_RUN_CLI_H_
#define TRIPTYCH_TESTS_CLIENT_RUN_CLI_H_

#include <string>
#include <vector>

#include "tests/support/process.h"

namespace triptych::client {

using Args = std::vector<std::string>;

std::vector<std::string> Lines(const std::string& text);
size_t CharacterCount(const std::string& text);

// The command line of `triptych` with `args`, for the server at `address`.
Args CliCommand(const std::string& address, Args args);

// Expects an empty standard output, and one line on standard error that contains `part`.
void ExpectError(const Process::Result& result, int exit_code, const std::string& part);

}  // namespace triptych::client

#endif  // TRIPTYCH_TESTS_CLIENT_RUN_CLI_H_
