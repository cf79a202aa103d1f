#include "server/core/sha256.h"

#include <openssl/sha.h>
#include <spdlog/fmt/fmt.h>

#include <array>
#include <cstdint>

namespace triptych::server {

std::string Sha256Hex(std::string_view bytes) {
  std::array<uint8_t, SHA256_DIGEST_LENGTH> hash;
  SHA256(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), hash.data());
  std::string hex;
  for (const uint8_t byte : hash) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace triptych::server
