#include "engine/tools/flags.h"

#include <CLI/CLI.hpp>
#include <sstream>
#include <utility>

#include "engine/base/parse.h"
#include "engine/base/quoted.h"
#include "engine/checkpoint/open_checkpoint.h"

namespace triptych::tools {

CLI::Validator NumberIn(double low, double high) {
  std::ostringstream range;
  range << low << " to " << high;
  return CLI::Validator(
      [low, high, allowed = range.str()](std::string& text) {
        return ParseNumber(text, low, high)
                   ? ""
                   : Quoted(text) + " is not a number that is allowed: " + allowed;
      },
      "FLOAT in [" + range.str() + "]");
}

CLI::Validator IsCheckpoint() {
  return CLI::Validator(
      [](std::string& path) {
        return checkpoint::MayBeCheckpoint(path)
                   ? ""
                   : Quoted(path) + " is not a directory or a .gguf file";
      },
      "DIR|GGUF");
}

CLI::Option* AddName(CLI::App& command, const std::string& flag,
                     const std::function<void(const std::string&)>& set,
                     const std::set<std::string>& names, const std::string& help) {
  return command.add_option_function<std::string>(flag, set, help)->check(CLI::IsMember(names));
}

CLI::Option* AddModel(CLI::App& command, const std::string& flag, std::filesystem::path& model,
                      const std::string& help) {
  return command.add_option(flag, model, help)->required()->check(IsCheckpoint());
}

CLI::Option* AddHeldOut(CLI::App& command, std::optional<double>& held_out) {
  return command
      .add_option("--held-out", held_out,
                  "held-out fraction of the text, at its end [the part that the model was not "
                  "trained on, or 0.1]")
      ->check(NumberIn(0.0, 0.9));
}

void AddText(CLI::App& command, std::filesystem::path& text, std::optional<double>& held_out) {
  command.add_option("--text", text, "text file")->required()->check(CLI::ExistingFile);
  AddHeldOut(command, held_out);
}

}  // namespace triptych::tools
