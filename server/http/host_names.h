// The names by which browsers may ask for the server.
#ifndef TRIPTYCH_SERVER_HTTP_HOST_NAMES_H_
#define TRIPTYCH_SERVER_HTTP_HOST_NAMES_H_

#include <string>
#include <string_view>
#include <vector>

#include "server/core/transport_options.h"

namespace triptych::server {

// Where neither a token nor a certificate is asked for, a page of any site could ask in its
// reader's place: the site has its own name lead to this server, whose answers the browser then
// takes for the site's (DNS rebinding). The name is in every request; a site cannot have it be an
// address, or one of these.
class HostNames {
 public:
  explicit HostNames(const TransportOptions& options);

  // Whether a request to HOST[:PORT] is answered.
  bool Contains(std::string_view authority) const;
  // What is allowed, as errors say it.
  std::string Allowed() const;

 private:
  const bool any_;
  std::vector<std::string> names_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_HOST_NAMES_H_
