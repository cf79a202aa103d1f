#ifndef TRIPTYCH_CLIENT_PEM_H_
#define TRIPTYCH_CLIENT_PEM_H_

#include <optional>
#include <string>

namespace triptych::client {

// gRPC takes any text for a certificate and then connects to nothing, without a reason. These give
// the reason, or nothing if the text can be used.

// `pem` holds at least one certificate, and all it holds can be read.
std::optional<std::string> FindBadCertificates(const std::string& pem);
// `pem` is a private key without a pass phrase, and that of the first of `certificates`.
// REQUIRES: certificates in which FindBadCertificates finds nothing.
std::optional<std::string> FindBadKey(const std::string& pem, const std::string& certificates);

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_PEM_H_
