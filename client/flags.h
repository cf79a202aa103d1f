// Flags that several commands share.
#ifndef TRIPTYCH_CLIENT_FLAGS_H_
#define TRIPTYCH_CLIENT_FLAGS_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "client/ranges.h"
#include "triptych/v1/inference.pb.h"

namespace triptych::client {

// The flags below refuse a bad value with CLI::ValidationError, in one line that names the flag,
// the value and what is allowed.

// Adds a flag that takes a number in `range`, and calls `set` with it.
template <typename T>
CLI::Option* AddNumber(CLI::App* app, const std::string& name, const std::string& help,
                       const Range<T>& range, const std::function<void(T)>& set) {
  constexpr bool kIsWhole = std::is_integral_v<T>;
  const bool has_limit = range.high != std::numeric_limits<T>::max();
  return app
      ->add_option_function<std::string>(
          name, [=](const std::string& text) { set(*ParseInRange(text, range)); },
          has_limit ? help + " (" + Describe(range) + ")" : help)
      ->check([=](const std::string& text) {
        if (ParseInRange(text, range)) return std::string();
        return "must be a " + std::string(kIsWhole ? "whole number, " : "number, ") +
               Describe(range) + ", not '" + text + "'";
      })
      ->type_name(kIsWhole ? "INT" : "FLOAT");
}

// Empty if `text` is UTF-8 and not empty; else what it must be, for CLI::Option::check.
std::string CheckText(const std::string& text);

// Adds a repeatable flag that takes non-empty UTF-8 text. Calls `set` once, with all values.
CLI::Option* AddTexts(CLI::App* app, const std::string& name, const std::string& help,
                      const std::function<void(const std::vector<std::string>&)>& set);

// Adds --model.
void AddModelFlag(CLI::App* app, const std::string& help, std::string& model);
// Help of --model for commands that need one model.
inline constexpr char kWhichModel[] = "Name of a loaded model [the only one]";

// Adds --priority high, normal or low, and calls `set` with it.
void AddPriorityFlag(CLI::App* app, const std::function<void(v1::Priority)>& set);

// Sets the end of a command's help: `examples`, one per line, and the flags of every command.
void SetFooter(CLI::App* app, const std::string& examples);

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_FLAGS_H_
