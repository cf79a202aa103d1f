// Authentication by bearer token, client certificate or peer address.
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

// A call's credentials, and the trace that it belongs to.
struct Credentials {
  std::vector<std::string> authorization;  // values of the authorization headers
  std::string address;                     // of the peer, without port; "unix" for a Unix socket
  // Common name of the client certificate; absent unless one was verified.
  std::optional<std::string> common_name = {};
  std::vector<std::string> traceparent = {};  // values of the traceparent headers
};

// Identifies callers. The first call after the token file has changed reads it again; if that
// fails, the tokens stay as they were, and the error is logged once. Thread-safe.
class Access {
 public:
  // Throws LoadError.
  explicit Access(const AccessOptions& options);
  ~Access();

  // The caller; UNAUTHENTICATED if tokens are in use and the call has no known token.
  Result<Caller> Authenticate(const Credentials& call) const;
  // The caller if it has `scope`; otherwise PERMISSION_DENIED.
  Result<Caller> Authorize(const Credentials& call, Scope scope) const;

 private:
  const bool insecure_;
  const std::unique_ptr<TokenFile> tokens_;  // null if tokens are not in use
};

// Converts an IPv4-mapped address, ::ffff:192.0.2.1, to IPv4 and leaves others unchanged, so that a
// client has one name over all transports.
std::string_view Unmapped(std::string_view address);

// True if the address, as in Credentials, is of this machine.
bool IsLoopback(std::string_view address);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_ACCESS_ACCESS_H_
