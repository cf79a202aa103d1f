#include "server/http/request_target.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <utility>

#include "engine/base/quoted.h"
#include "server/core/percent_decode.h"

namespace triptych::server {
namespace {

// Decodes a part of a query, in which + stands for a space.
std::string DecodeParameter(std::string_view text) {
  std::string blanks(text);
  std::replace(blanks.begin(), blanks.end(), '+', ' ');
  return PercentDecode(blanks);
}

// Removes scheme and authority from the front of an absolute target. Returns the authority.
std::string_view TakeAuthority(std::string_view& target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    const std::string_view front = target.substr(0, scheme.size());
    if (!boost::beast::iequals({front.data(), front.size()}, {scheme.data(), scheme.size()})) {
      continue;
    }
    target.remove_prefix(scheme.size());
    const std::string_view authority = target.substr(0, target.find_first_of("/?"));
    target.remove_prefix(authority.size());
    return authority;
  }
  return {};
}

}  // namespace

Result<RequestTarget> ParseTarget(std::string_view target) {
  RequestTarget parsed;
  parsed.authority = TakeAuthority(target);
  const size_t mark = std::min(target.find('?'), target.size());
  parsed.path = target.substr(0, mark);
  std::string_view rest = target.substr(std::min(mark + 1, target.size()));
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
    const size_t equals = std::min(pair.find('='), pair.size());
    std::string name = DecodeParameter(pair.substr(0, equals));
    std::string value = DecodeParameter(pair.substr(std::min(equals + 1, pair.size())));
    if (parsed.query.contains(name)) {
      return InvalidArgument(Printable(name), "is repeated; allowed: once");
    }
    parsed.query.emplace(std::move(name), std::move(value));
  }
  return parsed;
}

}  // namespace triptych::server
