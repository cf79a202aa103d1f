// Network addresses in flags.
#ifndef TRIPTYCH_ENGINE_BASE_ADDRESS_H_
#define TRIPTYCH_ENGINE_BASE_ADDRESS_H_

#include <optional>
#include <string>
#include <string_view>

namespace triptych {

struct Address {
  std::string host;  // an IPv6 address with its brackets
  int port = 0;      // 0 to 65535
};

// Parses HOST:PORT or [IPV6]:PORT; nullopt for any other text. gRPC accepts more than these: an
// address without a port, and its own schemes.
std::optional<Address> ParseAddress(std::string_view text);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_ADDRESS_H_
