// Certificates for tests, made when they are needed.
#ifndef TRIPTYCH_TESTS_SERVER_CERTIFICATES_H_
#define TRIPTYCH_TESTS_SERVER_CERTIFICATES_H_

#include <chrono>
#include <memory>
#include <string>

namespace triptych {

struct CertificateAndKey {
  std::string certificate;  // PEM
  std::string key;          // PEM
};

// An authority of its own, and what it issues.
class TestAuthority {
 public:
  TestAuthority();
  ~TestAuthority();

  const std::string& certificate() const { return certificate_; }  // PEM

  // For localhost and 127.0.0.1, valid from yesterday until `ends` from now.
  CertificateAndKey Issue(const std::string& common_name,
                          std::chrono::seconds ends = std::chrono::hours(24)) const;

 private:
  struct Keys;
  std::unique_ptr<Keys> keys_;
  std::string certificate_;
};

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SERVER_CERTIFICATES_H_
