// A caller's credentials, extracted from a gRPC call.
#ifndef TRIPTYCH_SERVER_GRPC_CREDENTIALS_H_
#define TRIPTYCH_SERVER_GRPC_CREDENTIALS_H_

#include <grpcpp/server_context.h>

#include <string>
#include <string_view>

#include "server/core/access/access.h"

namespace triptych::server {

Credentials CredentialsOf(const grpc::ServerContextBase& context);

// The address of a gRPC peer, without the port: "127.0.0.1" for "ipv4:127.0.0.1:5", "::1" for
// "ipv6:%5B::1%5D:5" or "ipv6:[::1]:5", "unix" for any Unix socket.
std::string PeerAddress(std::string_view peer);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_CREDENTIALS_H_
