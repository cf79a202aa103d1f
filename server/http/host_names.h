// Accepted Host header values, against DNS rebinding.
#ifndef TRIPTYCH_SERVER_HTTP_HOST_NAMES_H_
#define TRIPTYCH_SERVER_HTTP_HOST_NAMES_H_

#include <string>
#include <string_view>
#include <vector>

#include "server/core/transport_options.h"

namespace triptych::server {

// If no token or certificate is required, any web page could call this server from its reader's
// browser: the page's site resolves its own name to this server, and the browser treats the
// responses as the site's (DNS rebinding). The Host header then holds the site's name, never an IP
// address or one of these names.
class HostNames {
 public:
  explicit HostNames(const TransportOptions& options);

  // True if requests to `authority`, HOST[:PORT], are accepted.
  bool Contains(std::string_view authority) const;
  // The accepted values, for error messages.
  std::string Allowed() const;

 private:
  const bool any_;
  std::vector<std::string> names_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_HOST_NAMES_H_
