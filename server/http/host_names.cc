#include "server/http/host_names.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/beast/core/string.hpp>
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

}  // namespace

HostNames::HostNames(const TransportOptions& options)
    : any_(options.access.tokens || (options.tls && options.tls->client_authority)),
      names_(options.http_hosts) {
  names_.emplace_back("localhost");
  const std::optional<Address> listened = ParseAddress(options.http.value_or(""));
  if (listened && !IsIpAddress(listened->host) &&
      !boost::beast::iequals(listened->host, names_.back())) {
    names_.push_back(listened->host);
  }
}

bool HostNames::Contains(std::string_view authority) const {
  if (any_) return true;
  const size_t colon = authority.rfind(':');
  const bool has_port = colon != authority.npos && authority.find(']', colon) == authority.npos;
  std::string_view host = has_port ? authority.substr(0, colon) : authority;
  if (host.ends_with('.')) host.remove_suffix(1);  // fully qualified, the same name
  return IsIpAddress(host) || std::any_of(names_.begin(), names_.end(), [&](const auto& name) {
           return boost::beast::iequals(name, {host.data(), host.size()});
         });
}

std::string HostNames::Allowed() const {
  std::string allowed = "IP addresses";
  for (const std::string& name : names_) allowed += ", " + name;
  return allowed + " (more with --http-hosts)";
}

}  // namespace triptych::server
