#include "tests/server/certificates.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <stdexcept>

namespace triptych {
namespace {

template <auto function>
struct Free {
  template <typename T>
  void operator()(T* value) const {
    function(value);
  }
};
using Bio = std::unique_ptr<BIO, Free<BIO_free>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Free<X509_EXTENSION_free>>;

constexpr std::chrono::seconds kDay = std::chrono::hours(24);

void Checked(bool done, const char* what) {
  if (!done) throw std::runtime_error(what);
}

template <typename Write>
std::string ToPem(const Write& write) {
  const Bio bio(BIO_new(BIO_s_mem()));
  Checked(write(bio.get()) == 1, "PEM_write_bio");
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, size);
}

std::string ToPem(X509* certificate) {
  return ToPem([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

std::string ToPem(EVP_PKEY* key) {
  return ToPem([&](BIO* bio) {
    return PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
}

void AddExtension(X509* certificate, int kind, const char* value) {
  const Extension extension(X509V3_EXT_conf_nid(nullptr, nullptr, kind, value));
  Checked(extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1, value);
}

// A certificate for `key`, not signed yet.
Certificate MakeCertificate(EVP_PKEY* key, const std::string& common_name,
                            std::chrono::seconds ends) {
  static std::atomic<long> serial = 1;
  Certificate certificate(X509_new());
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), serial++);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kDay.count());
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), ends.count());
  X509_set_pubkey(certificate.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1,
                             0);
  return certificate;
}

}  // namespace

struct TestAuthority::Keys {
  Key key{EVP_EC_gen("P-256")};
  Certificate certificate;
};

TestAuthority::TestAuthority() : keys_(std::make_unique<Keys>()) {
  keys_->certificate = MakeCertificate(keys_->key.get(), "authority of a test", kDay);
  X509* const certificate = keys_->certificate.get();
  X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
  AddExtension(certificate, NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(certificate, NID_key_usage, "critical,keyCertSign");
  Checked(X509_sign(certificate, keys_->key.get(), EVP_sha256()) > 0, "X509_sign");
  certificate_ = ToPem(certificate);
}

TestAuthority::~TestAuthority() = default;

CertificateAndKey TestAuthority::Issue(const std::string& common_name,
                                       std::chrono::seconds ends) const {
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate = MakeCertificate(key.get(), common_name, ends);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(keys_->certificate.get()));
  AddExtension(certificate.get(), NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
  Checked(X509_sign(certificate.get(), keys_->key.get(), EVP_sha256()) > 0, "X509_sign");
  return {ToPem(certificate.get()), ToPem(key.get())};
}

}  // namespace triptych
