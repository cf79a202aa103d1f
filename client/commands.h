#ifndef TRIPTYCH_CLIENT_COMMANDS_H_
#define TRIPTYCH_CLIENT_COMMANDS_H_

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace triptych::client {

struct ServerFlags;

// Runs the command that the arguments of the program name. Prints what went wrong in one line;
// returns the exit status (exit_status.h).
int RunCommand(std::vector<std::string> arguments);

// Each adds one command to `app`, which runs when parsing is done. Bad usage throws
// CLI::ParseError, and what goes wrong afterwards Failure or Interrupted. `server` is read when
// the command runs, and must outlive it.
void AddBenchCommand(CLI::App& app, const ServerFlags& server);
void AddCompareCommand(CLI::App& app, const ServerFlags& server);
void AddDrainCommand(CLI::App& app, const ServerFlags& server);
void AddGenerateCommand(CLI::App& app, const ServerFlags& server);
void AddHealthCommand(CLI::App& app, const ServerFlags& server);
void AddKvCommand(CLI::App& app, const ServerFlags& server);
void AddModelsCommand(CLI::App& app, const ServerFlags& server);
void AddScoreCommand(CLI::App& app, const ServerFlags& server);
void AddTokenizeCommand(CLI::App& app, const ServerFlags& server);

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_COMMANDS_H_
