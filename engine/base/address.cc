#include "engine/base/address.h"

#include "engine/base/parse.h"

namespace triptych {

std::optional<Address> ParseAddress(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0) return std::nullopt;
  const std::string_view host = text.substr(0, colon);
  const bool brackets = host.starts_with('[') && host.ends_with(']');
  const std::optional<int> port = ParseNumber<int>(text.substr(colon + 1), 0, 65535);
  if ((host.find(':') != host.npos && !brackets) || !port) return std::nullopt;
  return Address{std::string(host), *port};
}

}  // namespace triptych
