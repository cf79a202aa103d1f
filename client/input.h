// Input of prompts: arguments, files, standard input and token ids.
#ifndef TRIPTYCH_CLIENT_INPUT_H_
#define TRIPTYCH_CLIENT_INPUT_H_

#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "triptych/v1/inference.pb.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace triptych::client {

// Reads the file of `flag`. Throws CLI::ValidationError, which names flag and file, if it cannot be
// read or is longer than 4 MiB, the limit of a message.
std::string ReadFile(const std::string& flag, const std::string& path);

// Adds a flag that takes token ids such as 1,2,3, and calls `set` with them. Refuses other values
// with CLI::ValidationError.
CLI::Option* AddTokenIds(CLI::App* app, const std::string& name, const std::string& help,
                         const std::function<void(const v1::TokenIds&)>& set);

// Source of a prompt: at most one of the first three; if none is set, standard input.
struct InputFlags {
  std::optional<std::string> text;
  std::optional<std::string> file;  // "-": standard input
  std::optional<v1::TokenIds> tokens;
  bool parse_special_tokens = false;
  bool no_begin_token = false;
};

// Adds the positional argument `name`, --file and --parse-special-tokens.
void AddTextFlags(CLI::App* app, const std::string& name, InputFlags& flags);
// Adds the same, --tokens and --no-begin-token.
void AddInputFlags(CLI::App* app, const std::string& name, InputFlags& flags);

using Input = std::variant<std::string, v1::TokenIds>;

// Both throw CLI::ValidationError if there is no input or more than one, and if it cannot be read,
// is empty, too long or not UTF-8.
std::string ReadText(const InputFlags& flags);
Input ReadInput(const InputFlags& flags);

// Request: GenerateRequest or ScoreInput. `input`: the result of ReadInput(flags).
template <typename Request>
void SetInput(const InputFlags& flags, const Input& input, Request& request) {
  if (const auto* text = std::get_if<std::string>(&input)) {
    request.set_text(*text);
    request.set_parse_special_tokens(flags.parse_special_tokens);
    if (flags.no_begin_token) request.set_begin_token(false);
  } else {
    *request.mutable_tokens() = std::get<v1::TokenIds>(input);
  }
}

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_INPUT_H_
