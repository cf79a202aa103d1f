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

// The flags below refuse a value that is not allowed with CLI::ValidationError, in one line that
// names flag, value and what is allowed.

// A flag that takes a number, with which `set` is called.
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

// Nothing if `text` is UTF-8 text and not empty; else, for CLI::Option::check, what it must be.
std::string CheckText(const std::string& text);

// A flag that takes UTF-8 text, not empty, and may be repeated. `set` is called once, with all.
CLI::Option* AddTexts(CLI::App* app, const std::string& name, const std::string& help,
                      const std::function<void(const std::vector<std::string>&)>& set);

// The --model of commands that take one.
void AddModelFlag(CLI::App* app, const std::string& help, std::string& model);
// Its help where the server needs to know which model.
inline constexpr char kWhichModel[] = "A model's name; not needed when only one is loaded";

// --priority high, normal or low, with which `set` is called.
void AddPriorityFlag(CLI::App* app, const std::function<void(v1::Priority)>& set);

// Ends a command's help: `examples`, one a line, and the flags that every command takes.
void SetFooter(CLI::App* app, const std::string& examples);

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_FLAGS_H_
