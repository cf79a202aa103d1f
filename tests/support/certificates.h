// Certificates for tests, made when they are needed.
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

// An authority of its own, made for one test, with keys that nothing else has.
class CertificateAuthority {
 public:
  explicit CertificateAuthority(const std::string& name = "authority");

  // What clients are given as --ca.
  const std::string& certificate() const { return certificate_; }

  // A certificate for `name`, its common name, and for `alternatives`. Valid from yesterday until
  // `days` days from now; 0: no longer since a moment ago. `curve` is its key's.
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
