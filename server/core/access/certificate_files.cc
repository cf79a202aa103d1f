#include "server/core/access/certificate_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "server/core/log.h"

namespace triptych::server {
namespace {

constexpr uint64_t kMaxPemBytes = 1 << 20;

template <auto function>
struct Free {
  template <typename T>
  void operator()(T* value) const {
    function(value);
  }
};
using Bio = std::unique_ptr<BIO, Free<BIO_free>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Context = std::unique_ptr<SSL_CTX, Free<SSL_CTX_free>>;
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;

Bio Open(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// Refuses a key with a passphrase, since nobody can be asked for it.
int NoPassphrase(char*, int, int, void*) { return -1; }

// Parses all certificates of a file, so that a truncated file is detected.
std::vector<Certificate> ParseCertificates(const std::string& pem,
                                           const std::filesystem::path& file) {
  ERR_clear_error();
  const Bio bio = Open(pem);
  std::vector<Certificate> certificates;
  while (Certificate next{PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr)}) {
    certificates.push_back(std::move(next));
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (certificates.empty() || !at_end) {
    throw LoadError(file.string() + ": certificate " + std::to_string(certificates.size() + 1) +
                    " cannot be read; allowed: certificates in PEM");
  }
  return certificates;
}

// Throws LoadError unless TLS can serve with `pem`.
void Check(const Certificates& pem, const TlsOptions& options) {
  const std::vector<Certificate> chain = ParseCertificates(pem.certificate, options.certificate);
  ERR_clear_error();
  const Key key(PEM_read_bio_PrivateKey(Open(pem.key).get(), nullptr, NoPassphrase, nullptr));
  const bool fits = key != nullptr && X509_check_private_key(chain.front().get(), key.get()) == 1;
  ERR_clear_error();
  if (key == nullptr) {
    throw LoadError(options.key.string() +
                    ": cannot be read; allowed: a private key in PEM without a passphrase");
  }
  if (!fits) {
    throw LoadError(options.key.string() + ": is not the private key of the certificate in " +
                    options.certificate.string());
  }
  const Context context(SSL_CTX_new(TLS_server_method()));
  // A chain certificate that OpenSSL refuses would otherwise fail every handshake.
  const bool is_taken = SSL_CTX_use_certificate(context.get(), chain.front().get()) == 1 &&
                        std::all_of(chain.begin() + 1, chain.end(), [&](const Certificate& next) {
                          return SSL_CTX_add1_chain_cert(context.get(), next.get()) == 1;
                        });
  if (!is_taken) {
    const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
    ERR_clear_error();
    throw LoadError(options.certificate.string() + ": TLS refuses the certificate: " +
                    (reason != nullptr ? reason : "OpenSSL gives no reason"));
  }
  if (options.client_authority) ParseCertificates(pem.client_authority, *options.client_authority);
}

std::vector<std::filesystem::path> Paths(const TlsOptions& options) {
  std::vector<std::filesystem::path> paths = {options.certificate, options.key};
  if (options.client_authority) paths.push_back(*options.client_authority);
  return paths;
}

std::shared_ptr<const Certificates> Read(const TlsOptions& options) {
  Certificates pem{
      ReadText(options.certificate, kMaxPemBytes), ReadText(options.key, kMaxPemBytes), {}};
  if (options.client_authority) {
    pem.client_authority = ReadText(*options.client_authority, kMaxPemBytes);
  }
  Check(pem, options);
  return std::make_shared<const Certificates>(std::move(pem));
}

}  // namespace

CertificateFiles::CertificateFiles(const TlsOptions& options)
    : options_(options), files_(Paths(options)), certificates_(Read(options)) {}

std::shared_ptr<const Certificates> CertificateFiles::Current() {
  const MutexLock lock(mutex_);
  if (files_.HasChanged()) {
    try {
      certificates_ = Read(options_);
      LogInfo("certificate reloaded from {}", options_.certificate.string());
    } catch (const LoadError& e) {
      LogError("certificate not reloaded, the previous one stays in use: {}", e.what());
    }
  }
  return certificates_;
}

}  // namespace triptych::server
