// Who is let in: bearer tokens, client certificates and peers' addresses.
#ifndef TRIPTYCH_SERVER_GRPC_ACCESS_H_
#define TRIPTYCH_SERVER_GRPC_ACCESS_H_

#include <grpcpp/server_context.h>

#include <memory>
#include <string>
#include <string_view>

#include "server/core/caller.h"
#include "server/core/error.h"
#include "server/core/transport_options.h"

namespace triptych {

class TokenFile;

// Thread-safe. The token file is read anew by the first call after it changed; one that cannot be
// read leaves the list as it was and is logged once.
class Access {
 public:
  // Throws LoadError.
  explicit Access(const AccessOptions& options);
  ~Access();

  // Who the call is from: an error if tokens are in use and it brings none that is known.
  Result<Caller> Authenticate(const grpc::ServerContextBase& context) const;
  // The same, and it may do what takes `scope`.
  Result<Caller> Authorize(const grpc::ServerContextBase& context, Scope scope) const;

 private:
  const bool insecure_;
  const std::unique_ptr<TokenFile> tokens_;  // null if none are in use
};

// The address in what gRPC calls a peer, without the port: "127.0.0.1" of "ipv4:127.0.0.1:5",
// "::1" of "ipv6:%5B::1%5D:5" or "ipv6:[::1]:5", "unix" of any Unix socket.
std::string PeerAddress(std::string_view peer);

// Whether the address, as PeerAddress has it, is this machine's own.
bool IsLoopback(std::string_view address);

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_GRPC_ACCESS_H_
