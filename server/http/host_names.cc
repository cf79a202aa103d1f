#include "server/http/host_names.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/ip/address.hpp>
#include <boost/beast/core/string.hpp>
#include <climits>
#include <optional>

#include "engine/base/address.h"

namespace triptych::server {
namespace {

bool IsIpAddress(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  boost::system::error_code error;
  boost::asio::ip::make_address(std::string(host), error);
  return !error;
}

// This machine's name; empty if it is unknown.
std::string OwnName() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, HOST_NAME_MAX) == 0 ? name : "";
}

// Domains that public DNS never resolves, so that no other site can have a name in them. Containers
// reach their host as host.docker.internal.
constexpr std::array<std::string_view, 2> kPrivateDomains = {".localhost", ".internal"};

}  // namespace

HostNames::HostNames(const TransportOptions& options)
    : any_(options.access.tokens || (options.tls && options.tls->client_authority)),
      names_(options.http_hosts) {
  names_.emplace_back("localhost");
  if (const std::string own = OwnName(); !own.empty()) {
    names_.push_back(own);
    names_.push_back(own + ".local");  // by multicast DNS
  }
  const std::optional<Address> listened = ParseAddress(options.http.value_or(""));
  if (listened && !IsIpAddress(listened->host) && !Contains(listened->host)) {
    names_.push_back(listened->host);
  }
}

bool HostNames::Contains(std::string_view authority) const {
  if (any_) return true;
  const size_t colon = authority.rfind(':');
  const bool has_port = colon != authority.npos && authority.find(']', colon) == authority.npos;
  std::string_view host = has_port ? authority.substr(0, colon) : authority;
  if (host.ends_with('.')) host.remove_suffix(1);  // fully qualified, the same name
  const bool is_private =
      std::any_of(kPrivateDomains.begin(), kPrivateDomains.end(), [&](std::string_view domain) {
        if (host.size() <= domain.size()) return false;
        const std::string_view end = host.substr(host.size() - domain.size());
        return boost::beast::iequals({end.data(), end.size()}, {domain.data(), domain.size()});
      });
  return is_private || IsIpAddress(host) ||
         std::any_of(names_.begin(), names_.end(), [&](const auto& name) {
           return boost::beast::iequals(name, {host.data(), host.size()});
         });
}

std::string HostNames::Allowed() const {
  std::string allowed = "IP addresses, names in .localhost and .internal";
  for (const std::string& name : names_) allowed += ", " + name;
  return allowed + " (more with --http-hosts)";
}

}  // namespace triptych::server
