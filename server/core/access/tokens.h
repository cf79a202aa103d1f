// Bearer tokens: who brings which may do what.
#ifndef TRIPTYCH_SERVER_CORE_ACCESS_TOKENS_H_
#define TRIPTYCH_SERVER_CORE_ACCESS_TOKENS_H_

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/core/access/caller.h"

namespace triptych::server {

// The SHA-256 of tokens, and whose they are. Immutable.
class TokenList {
 public:
  using Digest = std::array<unsigned char, 32>;
  struct Token {
    Caller caller;
    Digest digest;
  };

  // Lines of NAME SCOPE[,SCOPE...] SHA256HEX; empty ones, and those that begin with '#', are
  // skipped. A client may have several tokens; a token is one client's. Throws LoadError, which
  // names `file` and the line, and never shows what stands where the hash should.
  TokenList(std::string_view text, const std::string& file);

  // Whose token it is, if anybody's. Takes as long for each.
  std::optional<Caller> Find(std::string_view token) const;

  const std::vector<Token>& tokens() const { return tokens_; }

 private:
  std::vector<Token> tokens_;
};

// The token in an authorization header's value, "Bearer TOKEN" (RFC 6750), if it holds one.
std::optional<std::string_view> BearerToken(std::string_view authorization);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_ACCESS_TOKENS_H_
