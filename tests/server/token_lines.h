// Lines of token files, for tests.
#ifndef TRIPTYCH_TESTS_SERVER_TOKEN_LINES_H_
#define TRIPTYCH_TESTS_SERVER_TOKEN_LINES_H_

#include <openssl/sha.h>

#include <string>

namespace triptych::server {

inline std::string TokenHash(const std::string& token) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest);
  std::string text;
  for (const unsigned char byte : digest) {
    const char* const digits = "0123456789abcdef";
    text += {digits[byte >> 4], digits[byte & 15]};
  }
  return text;
}

inline std::string TokenLine(const std::string& name, const std::string& scopes,
                             const std::string& token) {
  return name + " " + scopes + " " + TokenHash(token) + "\n";
}

}  // namespace triptych::server

#endif  // TRIPTYCH_TESTS_SERVER_TOKEN_LINES_H_
