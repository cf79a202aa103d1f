#include "server/core/stats/page_tokens.h"

#include <spdlog/fmt/fmt.h>

#include <charconv>
#include <functional>
#include <random>
#include <system_error>

namespace triptych::server {

PageTokens::PageTokens() : process_(fmt::format("{:08x}", std::random_device()())) {}

std::string PageTokens::Make(std::string_view query, uint64_t position) const {
  const std::string text = fmt::format("{}/{}/{}", process_, position, query);
  return fmt::format("{:016x}{:x}", std::hash<std::string>()(text), position);
}

Result<uint64_t> PageTokens::Read(std::string_view query, std::string_view token) const {
  if (token.empty()) return uint64_t{0};
  constexpr size_t kHashDigits = 16;
  uint64_t position = 0;
  if (token.size() > kHashDigits) {
    const char* const end = token.data() + token.size();
    const auto [last, code] = std::from_chars(token.data() + kHashDigits, end, position, 16);
    if (code == std::errc() && last == end && Make(query, position) == token) return position;
  }
  return InvalidArgument("page_token",
                         Quote(token) + " was not issued by this server for this query");
}

}  // namespace triptych::server
