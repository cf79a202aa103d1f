// Certificates for tests, made on demand.
#ifndef TRIPTYCH_TESTS_SUPPORT_CERTIFICATES_H_
#define TRIPTYCH_TESTS_SUPPORT_CERTIFICATES_H_

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

namespace triptych {

// A certificate and its private key, in PEM.
struct Identity {
  std::string certificate;
  std::string key;
};

// A certificate authority for one test, with new keys.
class CertificateAuthority {
 public:
  explicit CertificateAuthority(const std::string& name = "authority");

  // PEM for a client's --ca.
  const std::string& certificate() const { return certificate_; }

  // A certificate with common name `name` and subject alternative names `alternatives`. Valid from
  // yesterday until `days` days from now; 0: expired a moment ago. `curve`: curve of its key.
  Identity Issue(const std::string& name,
                 const std::string& alternatives = "DNS:localhost,IP:127.0.0.1", int days = 2,
                 const std::string& curve = "P-256") const;

 private:
  std::shared_ptr<EVP_PKEY> key_;
  std::shared_ptr<X509> x509_;
  std::string certificate_;
};

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_CERTIFICATES_H_
