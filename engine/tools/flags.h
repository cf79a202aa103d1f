// Options that several commands of triptych-model declare.
#ifndef TRIPTYCH_ENGINE_TOOLS_FLAGS_H_
#define TRIPTYCH_ENGINE_TOOLS_FLAGS_H_

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace triptych::tools {

// A number from `low` to `high`. Refuses NaN, which CLI::Range accepts.
CLI::Validator NumberIn(double low, double high);

// An existing checkpoint: a directory or a .gguf file.
CLI::Validator IsCheckpoint();

// An option that takes one of `names`, with which `set` is called.
CLI::Option* AddName(CLI::App& command, const std::string& flag,
                     const std::function<void(const std::string&)>& set,
                     const std::set<std::string>& names, const std::string& help);

// An option that takes one of the names of `values` and sets `target`, which must outlive
// `command`, to its value.
template <typename Value, typename Target>
CLI::Option* AddChoice(CLI::App& command, const std::string& flag, Target& target,
                       const std::map<std::string, Value>& values, const std::string& help) {
  std::set<std::string> names;
  for (const auto& [name, value] : values) names.insert(name);
  return AddName(
      command, flag, [&target, values](const std::string& name) { target = values.at(name); },
      names, help);
}

// A required checkpoint.
CLI::Option* AddModel(CLI::App& command, const std::string& flag, std::filesystem::path& model,
                      const std::string& help = "checkpoint: a directory or a .gguf file");

// --held-out.
CLI::Option* AddHeldOut(CLI::App& command, std::optional<double>& held_out);

// --text, required, and --held-out.
void AddText(CLI::App& command, std::filesystem::path& text, std::optional<double>& held_out);

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_FLAGS_H_
