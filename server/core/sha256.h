// SHA-256 digests.
#ifndef TRIPTYCH_SERVER_CORE_SHA256_H_
#define TRIPTYCH_SERVER_CORE_SHA256_H_

#include <string>
#include <string_view>

namespace triptych::server {

// 64 hexadecimal digits in lower case.
std::string Sha256Hex(std::string_view bytes);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_SHA256_H_
