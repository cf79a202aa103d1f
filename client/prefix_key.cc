#include "client/prefix_key.h"

#include <openssl/sha.h>

#include <algorithm>
#include <cstdint>

namespace triptych::client {
namespace {

constexpr size_t kPrefixBytes = 64;
constexpr int kPrefixTokens = 64;
constexpr size_t kKeyBytes = 8;

}  // namespace

std::string PrefixKey(const v1::GenerateRequest& request) {
  std::string prefix = request.model();
  prefix += '\0';
  prefix.append(request.text(), 0, kPrefixBytes);
  const auto& ids = request.tokens().ids();
  for (int i = 0; i < std::min(ids.size(), kPrefixTokens); ++i) {
    const auto id = static_cast<uint32_t>(ids[i]);
    for (int shift = 0; shift < 32; shift += 8) prefix += static_cast<char>(id >> shift);
  }
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(prefix.data()), prefix.size(), digest);
  std::string key;
  for (size_t i = 0; i < kKeyBytes; ++i) {
    key += "0123456789abcdef"[digest[i] >> 4];
    key += "0123456789abcdef"[digest[i] & 15];
  }
  return key;
}

}  // namespace triptych::client
