#include "server/core/access/tokens.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>

#include "engine/base/error.h"
#include "engine/base/quoted.h"

namespace triptych::server {
namespace {

using Digest = TokenList::Digest;

std::vector<std::string_view> Split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find_first_of(separators);
    parts.push_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool IsClientName(std::string_view name) {
  return !name.empty() && name.size() <= 64 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '-' || c == '_' || c == '.';
         });
}

bool SetScope(std::string_view name, Caller& caller) {
  if (name == "inference") return caller.inference = true;
  if (name == "statistics") return caller.statistics = true;
  if (name == "admin") return caller.admin = true;
  return false;
}

std::optional<Digest> ParseDigest(std::string_view text) {
  Digest digest;
  if (text.size() != 2 * digest.size()) return std::nullopt;
  for (size_t i = 0; i < digest.size(); ++i) {
    const char* const byte = text.data() + 2 * i;
    const auto [end, error] = std::from_chars(byte, byte + 2, digest[i], 16);
    if (error != std::errc() || end != byte + 2) return std::nullopt;
  }
  return digest;
}

// Errors do not show the last word: it may be a token by mistake.
TokenList::Token ParseLine(std::string_view line, const std::string& where) {
  std::vector<std::string_view> words = Split(line, " \t\r");
  std::erase(words, "");
  if (words.size() != 3) {
    throw LoadError(where + ": " + std::to_string(words.size()) +
                    " words; allowed: NAME SCOPE[,SCOPE...] SHA256HEX");
  }
  TokenList::Token token;
  if (!IsClientName(words[0])) {
    throw LoadError(where + ": the name is " + Quoted(words[0]) +
                    "; allowed: 1 to 64 letters, digits, '-', '_' and '.'");
  }
  token.caller.client = words[0];
  for (const std::string_view scope : Split(words[1], ",")) {
    if (!SetScope(scope, token.caller)) {
      throw LoadError(where + ": " + Quoted(scope) +
                      " is not a scope; allowed: inference, statistics, admin");
    }
  }
  const std::optional<Digest> digest = ParseDigest(words[2]);
  if (!digest) {
    throw LoadError(where + ": the token of " + token.caller.client +
                    " is not a SHA-256; allowed: 64 hexadecimal digits");
  }
  token.digest = *digest;
  return token;
}

Digest Hash(std::string_view token) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest.data());
  return digest;
}

}  // namespace

TokenList::TokenList(std::string_view text, const std::string& file) {
  std::set<Digest> digests;
  int number = 0;
  for (const std::string_view line : Split(text, "\n")) {
    const std::string where = file + " line " + std::to_string(++number);
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == line.npos || line[begin] == '#') continue;
    tokens_.push_back(ParseLine(line, where));
    // A client may have several tokens, but a token only one client.
    if (!digests.insert(tokens_.back().digest).second) {
      throw LoadError(where + ": the token of " + tokens_.back().caller.client +
                      " is also on another line; allowed: once");
    }
  }
  if (tokens_.empty()) throw LoadError(file + ": no tokens; allowed: at least one");
}

std::optional<Caller> TokenList::Find(std::string_view token) const {
  const Digest digest = Hash(token);
  const Token* found = nullptr;
  for (const Token& known : tokens_) {
    if (CRYPTO_memcmp(known.digest.data(), digest.data(), digest.size()) == 0) found = &known;
  }
  return found == nullptr ? std::nullopt : std::optional(found->caller);
}

std::optional<std::string_view> BearerToken(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  const bool is_bearer =
      authorization.size() > kScheme.size() &&
      std::equal(kScheme.begin(), kScheme.end(), authorization.begin(),
                 [](char expected, unsigned char c) { return std::tolower(c) == expected; });
  if (!is_bearer) return std::nullopt;
  return authorization.substr(kScheme.size());
}

}  // namespace triptych::server
