#include "server/grpc/credentials.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>

#include <memory>
#include <vector>

#include "server/core/requests/trace_parent.h"

namespace triptych::server {

Credentials CredentialsOf(const grpc::ServerContextBase& context) {
  const auto values = [&](const char* name) {
    std::vector<std::string> found;
    const auto [begin, end] = context.client_metadata().equal_range(name);
    for (auto value = begin; value != end; ++value) {
      found.emplace_back(value->second.data(), value->second.size());
    }
    return found;
  };
  Credentials credentials{.authorization = values("authorization"),
                          .address = PeerAddress(context.peer()),
                          .traceparent = values(kTraceParent)};
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  if (peer != nullptr && peer->IsPeerAuthenticated()) {
    const std::vector<grpc::string_ref> names =
        peer->FindPropertyValues(GRPC_X509_CN_PROPERTY_NAME);
    if (!names.empty()) credentials.common_name.emplace(names[0].data(), names[0].size());
  }
  return credentials;
}

std::string PeerAddress(std::string_view peer) {
  const size_t scheme = peer.find(':');
  if (peer.starts_with("unix")) return "unix";
  if (scheme == peer.npos) return std::string(peer);
  std::string address(peer.substr(scheme + 1, peer.rfind(':') - scheme - 1));
  for (const std::string_view bracket : {"%5B", "%5D", "[", "]"}) {
    const size_t at = address.find(bracket);
    if (at != address.npos) address.erase(at, bracket.size());
  }
  return address;
}

}  // namespace triptych::server
