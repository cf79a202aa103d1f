// Checks of certificates and keys in PEM.
#ifndef TRIPTYCH_CLIENT_PEM_H_
#define TRIPTYCH_CLIENT_PEM_H_

#include <optional>
#include <string>

namespace triptych::client {

// gRPC accepts any text as a certificate, and then fails to connect without a reason. These
// functions return the reason, or nullopt if the text can be used.

// Checks that `pem` holds at least one certificate, and that all of them can be read.
std::optional<std::string> FindBadCertificates(const std::string& pem);
// Checks that `pem` is a private key without a pass phrase, and belongs to the first of
// `certificates`. REQUIRES: FindBadCertificates accepts `certificates`.
std::optional<std::string> FindBadKey(const std::string& pem, const std::string& certificates);

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_PEM_H_
