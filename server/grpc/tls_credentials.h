// TLS from PEM files that may change while the server runs.
#ifndef TRIPTYCH_SERVER_GRPC_TLS_CREDENTIALS_H_
#define TRIPTYCH_SERVER_GRPC_TLS_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/core/transport_options.h"

namespace triptych {

// Credentials of a server for TLS 1.2 and 1.3. With a client authority, clients must bring a
// certificate that leads to it. The files are read anew by the first connection after they changed;
// connections that are open stay. Files that cannot be read, or do not fit each other, leave the
// ones before in use and are logged once. Throws LoadError.
std::shared_ptr<grpc::ServerCredentials> TlsCredentials(const TlsOptions& options);

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_GRPC_TLS_CREDENTIALS_H_
