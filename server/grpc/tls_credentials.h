// TLS from PEM files that may change while the server runs.
#ifndef TRIPTYCH_SERVER_GRPC_TLS_CREDENTIALS_H_
#define TRIPTYCH_SERVER_GRPC_TLS_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/core/access/certificate_files.h"

namespace triptych::server {

// Credentials of a server for TLS 1.2 and 1.3. With a client authority, clients must bring a
// certificate that leads to it. Each connection gets what the files hold when it begins; those that
// are open stay.
std::shared_ptr<grpc::ServerCredentials> TlsCredentials(std::shared_ptr<CertificateFiles> files);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_GRPC_TLS_CREDENTIALS_H_
