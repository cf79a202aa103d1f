// triptych-model: makes, measures and inspects checkpoints.

#include <c10/util/Exception.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>

#include "engine/base/quoted.h"
#include "engine/base/version.h"
#include "engine/decoder/compute_threads.h"
#include "engine/tools/commands.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace triptych::tools {
namespace {

// The command as typed, quoted for a shell. Unprintable characters are escaped.
std::string CommandLine(int argc, char** argv) {
  constexpr size_t kMaxArgument = 4096;
  constexpr const char* kSpecial = " \"'\\`$&|;<>()*?#~!{}[]";
  std::string line = std::filesystem::path(argv[0]).filename();
  for (int i = 1; i < argc; ++i) {
    const std::string argument = Printable(argv[i], kMaxArgument);
    if (!argument.empty() && argument.find_first_of(kSpecial) == std::string::npos) {
      line += " " + argument;
      continue;
    }
    line += " '";
    for (const char c : argument) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += "'";
  }
  return line;
}

// Training allocates the same large tensors in every step. Without this, a third of the time goes
// into page faults.
void KeepAllocatedPages() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_ARENA_MAX, 1);
#endif
}

ExitStatus PrintError(const char* error) {
  std::fprintf(stderr, "triptych-model: %s\n", error);
  return kTrouble;
}

int Main(int argc, char** argv) {
  CLI::App app(
      "Make, measure and inspect models of Triptych. Exit status: 0, or 1 if compared models "
      "differ or a claim fails, or 2 after an error.",
      "triptych-model");
  app.set_version_flag("--version", "triptych-model " + std::string(Version()),
                       "Print the version and exit");
  app.require_subcommand(1);
  Invocation invocation{.command_line = CommandLine(argc, argv),
                        .threads = static_cast<int>(std::thread::hardware_concurrency())};
  app.add_option("--threads", invocation.threads, "compute threads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  AddTrainCommand(app, invocation);
  AddEvaluateCommand(app, invocation);
  AddImportCommand(app, invocation);
  AddInspectCommand(app, invocation);
  AddPlanCommand(app, invocation);
  AddConvertCommand(app, invocation);
  AddQuantizeCommand(app, invocation);
  AddVerifyCommand(app, invocation);

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return PrintError(error.what());
  }
  SetComputeThreads(invocation.threads);
  KeepAllocatedPages();
  try {
    return invocation.run();
  } catch (const c10::Error& error) {  // its what() has pages of backtrace
    return PrintError(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return PrintError(error.what());
  }
}

}  // namespace
}  // namespace triptych::tools

int main(int argc, char** argv) { return triptych::tools::Main(argc, argv); }
