// Bearer tokens and the callers that they identify.
#ifndef TRIPTYCH_SERVER_CORE_ACCESS_TOKENS_H_
#define TRIPTYCH_SERVER_CORE_ACCESS_TOKENS_H_

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/core/access/caller.h"

namespace triptych::server {

// SHA-256 digests of tokens, with the caller of each. Immutable.
class TokenList {
 public:
  using Digest = std::array<unsigned char, 32>;
  struct Token {
    Caller caller;
    Digest digest;
  };

  // Parses lines NAME SCOPE[,SCOPE...] SHA256HEX; empty lines and lines that begin with '#' are
  // skipped. A client may have several tokens; a token has one client. Throws LoadError, which
  // names `file` and the line but never shows the third word: it may be a token by mistake.
  TokenList(std::string_view text, const std::string& file);

  // The caller of `token`, if it is known. Compares it with all digests, each in constant time.
  std::optional<Caller> Find(std::string_view token) const;

  const std::vector<Token>& tokens() const { return tokens_; }

 private:
  std::vector<Token> tokens_;
};

// The token of an authorization header's value, "Bearer TOKEN" (RFC 6750), if there is one.
std::optional<std::string_view> BearerToken(std::string_view authorization);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_ACCESS_TOKENS_H_
