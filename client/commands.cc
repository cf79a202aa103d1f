#include "client/commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <utility>

#include "client/exit_status.h"
#include "client/format.h"
#include "client/output.h"
#include "client/server_flags.h"
#include "client/session.h"
#include "engine/base/version.h"

namespace triptych::client {
namespace {

// Prints one line, below the output that is already on the terminal.
void PrintError(const std::string& message) {
  if (StdoutIsTerminal()) EndLine();
  std::cerr << "triptych: " << OneLine(message) << "\n";
}

}  // namespace

int RunCommand(std::vector<std::string> arguments) {
  CLI::App app("Generates and scores text on a Triptych server, and shows its cache costs.",
               "triptych");
  app.set_version_flag("--version", "triptych " + std::string(Version()),
                       "Print the version and exit");
  app.fallthrough();
  app.require_subcommand(0, 1);  // zero are refused below, after unknown ones
  app.get_formatter()->column_width(34);
  app.footer(
      "Examples:\n"
      "  triptych generate -n 200 \"To be, or not to be\"\n"
      "  triptych compare -n 100 --temperature 0 \"To be, or not to be\"\n"
      "  triptych kv --watch\n\n"
      "triptych COMMAND --help lists the options of a command.");

  ServerFlags server;
  AddServerFlags(app, server);
  AddGenerateCommand(app, server);
  AddCompareCommand(app, server);
  AddScoreCommand(app, server);
  AddTokenizeCommand(app, server);
  AddModelsCommand(app, server);
  AddKvCommand(app, server);
  AddBenchCommand(app, server);
  AddHealthCommand(app, server);
  AddDrainCommand(app, server);

  AddServerFlagsFromEnvironment(arguments);
  std::reverse(arguments.begin(), arguments.end());  // the order that CLI11 expects

  try {
    app.parse(std::move(arguments));
    if (app.get_subcommands().empty()) throw CLI::RequiredError("A command");
    return kExitOk;
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ExtrasError& error) {
    PrintError(error.what() + std::string(" (see --help; text of several words needs quotes)"));
    return kExitBadUsage;
  } catch (const CLI::ParseError& error) {
    PrintError(error.what());
    return kExitBadUsage;
  } catch (const Failure& failure) {
    PrintError(failure.what());
    return kExitFailed;
  } catch (const Interrupted&) {
    if (StdoutIsTerminal()) EndLine();
    return kExitInterrupted;
  }
}

}  // namespace triptych::client
