#include "client/input.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <sstream>

#include "client/flags.h"
#include "engine/base/utf8.h"

namespace triptych::client {
namespace {

// gRPC's default limit of a message; also stops an endless file from filling the memory.
constexpr size_t kMaxInputBytes = size_t{4} << 20;

std::optional<v1::TokenIds> ParseTokens(const std::string& text) {
  v1::TokenIds tokens;
  std::istringstream stream(text);
  for (std::string id; std::getline(stream, id, ',');) {
    const auto number = ParseInRange<int32_t>(id, {0, limits::kInt32Max});
    if (!number) return std::nullopt;
    tokens.add_ids(*number);
  }
  if (tokens.ids().empty() || text.back() == ',') return std::nullopt;
  return tokens;
}

// `source` and `name` are for the error: "--file", "'prompt.txt'".
std::string ReadAll(std::FILE* file, const std::string& source, const std::string& name) {
  std::string text;
  std::array<char, 1 << 16> buffer;
  while (file != nullptr && text.size() <= kMaxInputBytes) {
    const size_t count = std::fread(buffer.data(), 1, buffer.size(), file);
    if (count == 0) break;
    text.append(buffer.data(), count);
  }
  if (file == nullptr || std::ferror(file)) {
    throw CLI::ValidationError(source, "cannot read " + name + ": " + std::strerror(errno));
  }
  if (text.size() > kMaxInputBytes) {
    throw CLI::ValidationError(source, name + " is longer than 4 MiB");
  }
  return text;
}

}  // namespace

std::string ReadFile(const std::string& flag, const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  return ReadAll(file.get(), flag, "'" + path + "'");
}

CLI::Option* AddTokenIds(CLI::App* app, const std::string& name, const std::string& help,
                         const std::function<void(const v1::TokenIds&)>& set) {
  return app
      ->add_option_function<std::string>(
          name, [set](const std::string& text) { set(*ParseTokens(text)); }, help)
      ->check([](const std::string& text) {
        return ParseTokens(text) ? ""
                                 : "must be a list of token ids such as 1,2,3, not '" + text + "'";
      })
      ->type_name("IDS");
}

void AddTextFlags(CLI::App* app, const std::string& name, InputFlags& flags) {
  app->add_option(name, flags.text, "Text [that of --file, or standard input]");
  app->add_option("--file", flags.file, "File with the text; -: standard input")->type_name("FILE");
  app->add_flag("--parse-special-tokens", flags.parse_special_tokens,
                "Encode names of special tokens in the text as those tokens");
}

void AddInputFlags(CLI::App* app, const std::string& name, InputFlags& flags) {
  AddTextFlags(app, name, flags);
  app->add_flag("--no-begin-token", flags.no_begin_token, "Omit the begin token before the text");
  AddTokenIds(app, "--tokens", "Token ids instead of text, such as 1,2,3",
              [&flags](const v1::TokenIds& ids) { flags.tokens = ids; })
      ->excludes("--parse-special-tokens")
      ->excludes("--no-begin-token");
}

std::string ReadText(const InputFlags& flags) {
  if (flags.text && flags.file) {
    throw CLI::ValidationError("input", "give only one of an argument and --file");
  }
  std::string text;
  if (flags.text) {
    text = *flags.text;
  } else if (flags.file && *flags.file != "-") {
    text = ReadFile("--file", *flags.file);
  } else if (!flags.file && isatty(STDIN_FILENO)) {
    throw CLI::ValidationError(
        "nothing to read: give the text as an argument or with --file FILE, or pipe it in");
  } else {
    text = ReadAll(stdin, "input", "standard input");
  }
  if (text.empty()) throw CLI::ValidationError("input", "the text is empty");
  if (const auto offset = FindInvalidUtf8(text)) {
    throw CLI::ValidationError(
        "input", "the text is not valid UTF-8 (byte " + std::to_string(*offset) + ")");
  }
  return text;
}

Input ReadInput(const InputFlags& flags) {
  if (!flags.tokens) return ReadText(flags);
  if (flags.text || flags.file) {
    throw CLI::ValidationError("input", "give only one of an argument, --file and --tokens");
  }
  return *flags.tokens;
}

}  // namespace triptych::client
