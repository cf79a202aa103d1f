// Who is let in: bearer tokens, client certificates and peers' addresses.
#ifndef TRIPTYCH_SERVER_CORE_ACCESS_ACCESS_H_
#define TRIPTYCH_SERVER_CORE_ACCESS_ACCESS_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/core/access/caller.h"
#include "server/core/error.h"
#include "server/core/transport_options.h"

namespace triptych::server {

class TokenFile;

// What a call brings by which it may be known who calls, and as part of what.
struct Credentials {
  std::vector<std::string> authorization;  // the values of its headers of that name
  std::string address;                     // the peer's, without a port; "unix" of a Unix socket
  // Of the client certificate, if there is one and its authority is known.
  std::optional<std::string> common_name = {};
  std::vector<std::string> traceparent = {};  // the values of its headers of that name
};

// Thread-safe. The token file is read anew by the first call after it changed; one that cannot be
// read leaves the list as it was and is logged once.
class Access {
 public:
  // Throws LoadError.
  explicit Access(const AccessOptions& options);
  ~Access();

  // Who the call is from: an error if tokens are in use and it brings none that is known.
  Result<Caller> Authenticate(const Credentials& call) const;
  // The same, and it may do what takes `scope`.
  Result<Caller> Authorize(const Credentials& call, Scope scope) const;

 private:
  const bool insecure_;
  const std::unique_ptr<TokenFile> tokens_;  // null if none are in use
};

// An IPv4 address as a socket for both families shows it, ::ffff:192.0.2.1, as itself; others as
// they are. One client is the same over all transports.
std::string_view Unmapped(std::string_view address);

// Whether the address, as Credentials has it, is this machine's own.
bool IsLoopback(std::string_view address);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_ACCESS_ACCESS_H_
