#include "tests/support/certificates.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <cstdint>
#include <stdexcept>

namespace triptych {
namespace {

constexpr long kDay = 24 * 60 * 60;

template <typename T>
T* Made(T* object) {
  if (object == nullptr) throw std::runtime_error("OpenSSL cannot make a certificate");
  return object;
}

std::shared_ptr<EVP_PKEY> MakeKey(const std::string& curve) {
  return {Made(EVP_EC_gen(curve.c_str())), EVP_PKEY_free};
}

void AddExtension(X509* certificate, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const std::shared_ptr<X509_EXTENSION> extension(
      Made(X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str())), X509_EXTENSION_free);
  X509_add_ext(certificate, extension.get(), -1);
}

// An unsigned certificate.
std::shared_ptr<X509> MakeCertificate(const std::string& name, EVP_PKEY* key, int days) {
  const std::shared_ptr<X509> certificate(Made(X509_new()), X509_free);
  X509_set_version(certificate.get(), 2);  // version 3
  uint32_t serial = 0;
  RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial));
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kDay);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), days == 0 ? -1 : days * kDay);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_pubkey(certificate.get(), key);
  return certificate;
}

template <typename Write>
std::string ToPem(Write&& write) {
  const std::shared_ptr<BIO> bio(Made(BIO_new(BIO_s_mem())), BIO_free);
  write(bio.get());
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<size_t>(size)};
}

std::string ToPem(X509* certificate) {
  return ToPem([&](BIO* bio) { PEM_write_bio_X509(bio, certificate); });
}

std::string ToPem(EVP_PKEY* key) {
  return ToPem(
      [&](BIO* bio) { PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr); });
}

}  // namespace

CertificateAuthority::CertificateAuthority(const std::string& name) : key_(MakeKey("P-256")) {
  x509_ = MakeCertificate(name, key_.get(), 2);
  X509_set_issuer_name(x509_.get(), X509_get_subject_name(x509_.get()));
  AddExtension(x509_.get(), x509_.get(), NID_basic_constraints, "critical,CA:TRUE");
  X509_sign(x509_.get(), key_.get(), EVP_sha256());
  certificate_ = ToPem(x509_.get());
}

Identity CertificateAuthority::Issue(const std::string& name, const std::string& alternatives,
                                     int days, const std::string& curve) const {
  const std::shared_ptr<EVP_PKEY> key = MakeKey(curve);
  const std::shared_ptr<X509> certificate = MakeCertificate(name, key.get(), days);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(x509_.get()));
  AddExtension(certificate.get(), x509_.get(), NID_subject_alt_name, alternatives);
  X509_sign(certificate.get(), key_.get(), EVP_sha256());
  return {ToPem(certificate.get()), ToPem(key.get())};
}

}  // namespace triptych
