#include "server/core/requests/trace_parent.h"

#include <algorithm>
#include <cstddef>

namespace triptych::server {
namespace {

constexpr size_t kLength = 2 + 1 + 32 + 1 + 16 + 1 + 2;

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// An id of zeros is none.
bool IsId(std::string_view text) { return IsHex(text) && text.find_first_not_of('0') != text.npos; }

}  // namespace

std::string TraceParent(const std::vector<std::string>& headers) {
  if (headers.size() != 1 || headers[0].size() < kLength) return "";
  const std::string_view whole = headers[0];
  const std::string_view known = whole.substr(0, kLength), rest = whole.substr(kLength);
  const std::string_view version = known.substr(0, 2);
  const bool is_valid = IsHex(version) && version != "ff" && known[2] == '-' &&
                        IsId(known.substr(3, 32)) && known[35] == '-' &&
                        IsId(known.substr(36, 16)) && known[52] == '-' && IsHex(known.substr(53)) &&
                        (rest.empty() || (version != "00" && rest[0] == '-'));
  return is_valid ? std::string(known) : "";
}

}  // namespace triptych::server
