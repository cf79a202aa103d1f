// Commands of triptych-model.
#ifndef TRIPTYCH_ENGINE_TOOLS_COMMANDS_H_
#define TRIPTYCH_ENGINE_TOOLS_COMMANDS_H_

#include <functional>
#include <string>

namespace CLI {
class App;
}  // namespace CLI

namespace triptych::tools {

// Exit status of the program, as diff(1) has it.
enum ExitStatus { kOk = 0, kDifferent = 1, kTrouble = 2 };

// The parsed command and what it needs of the program's arguments.
struct Invocation {
  std::string command_line;              // as typed, for model cards
  int threads = 1;                       // compute threads
  std::function<ExitStatus()> run = {};  // runs the command; absent before parsing
};

// Each adds one command to `app`. Parsing it sets `invocation.run`, which throws LoadError,
// std::invalid_argument or std::runtime_error. `invocation` must outlive `app`.
void AddConvertCommand(CLI::App& app, Invocation& invocation);
void AddEvaluateCommand(CLI::App& app, Invocation& invocation);
void AddImportCommand(CLI::App& app, Invocation& invocation);
void AddInspectCommand(CLI::App& app, Invocation& invocation);
void AddPlanCommand(CLI::App& app, Invocation& invocation);
void AddQuantizeCommand(CLI::App& app, Invocation& invocation);
void AddTrainCommand(CLI::App& app, Invocation& invocation);
void AddVerifyCommand(CLI::App& app, Invocation& invocation);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_COMMANDS_H_
