#ifndef TRIPTYCH_CLIENT_FLAGS_H_
#define TRIPTYCH_CLIENT_FLAGS_H_

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace triptych::client {

// The values a numeric flag takes: from `low` (or only above it) to `high`.
template <typename T>
struct Range {
  T low;
  T high;
  bool above_low = false;

  bool Contains(T value) const {
    return (above_low ? value > low : value >= low) && value <= high;  // No NaN is.
  }
};

// All of `text` as a number in `range`.
template <typename T>
std::optional<T> ParseNumber(std::string_view text, const Range<T>& range) {
  T value;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return range.Contains(value) ? std::optional(value) : std::nullopt;
}

// "1 to 20".
template <typename T>
std::string Describe(const Range<T>& range) {
  std::ostringstream text;
  text.precision(10);
  text << (range.above_low ? "above " : "") << range.low;
  text << (range.above_low ? ", up to " : " to ") << range.high;
  return text.str();
}

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
          name, [=](const std::string& text) { set(*ParseNumber(text, range)); },
          has_limit ? help + " (" + Describe(range) + ")" : help)
      ->check([=](const std::string& text) {
        if (ParseNumber(text, range)) return std::string();
        return "must be a " + std::string(kIsWhole ? "whole number, " : "number, ") +
               Describe(range) + ", not '" + text + "'";
      })
      ->type_name(kIsWhole ? "INT" : "FLOAT");
}

// A flag that takes UTF-8 text, not empty, and may be repeated. `set` is called once, with all.
CLI::Option* AddTexts(CLI::App* app, const std::string& name, const std::string& help,
                      const std::function<void(const std::vector<std::string>&)>& set);

// The --model of commands that take one.
void AddModelFlag(CLI::App* app, const std::string& help, std::string& model);
// Its help where the server needs to know which model.
inline constexpr char kWhichModel[] = "A model's name; not needed when only one is loaded";

// Ends a command's help: `examples`, one a line, and the flags that every command takes.
void SetFooter(CLI::App* app, const std::string& examples);

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_FLAGS_H_
