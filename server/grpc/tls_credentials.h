// Server credentials for TLS from PEM files that are reloaded when they change.
#ifndef TRIPTYCH_SERVER_GRPC_TLS_CREDENTIALS_H_
#define TRIPTYCH_SERVER_GRPC_TLS_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/core/access/certificate_files.h"

namespace triptych::server {

// Server credentials for TLS 1.2 and 1.3. With a client authority, clients must present a
// certificate of it. A new connection uses the files' contents at its start; open ones keep theirs.
std::shared_ptr<grpc::ServerCredentials> TlsCredentials(std::shared_ptr<CertificateFiles> files);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_TLS_CREDENTIALS_H_
