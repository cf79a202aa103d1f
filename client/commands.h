// Commands of the command-line client.
#ifndef TRIPTYCH_CLIENT_COMMANDS_H_
#define TRIPTYCH_CLIENT_COMMANDS_H_

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace triptych::client {

struct ServerFlags;

// Runs the command in the program's arguments. Prints an error in one line. Returns the exit status
// (exit_status.h).
int RunCommand(std::vector<std::string> arguments);

// Each adds one command to `app`, which runs after parsing. It throws CLI::ParseError for bad
// usage, and Failure or Interrupted afterwards. `server` is read when the command runs, and must
// outlive it.
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
