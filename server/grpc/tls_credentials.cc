#include "server/grpc/tls_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpcpp/version_info.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <spdlog/spdlog.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/base/mutex.h"
#include "server/grpc/watched_file.h"

namespace triptych {
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
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;

struct PemFiles {
  std::string certificate, key, client_authority;
};

Bio Open(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// A key behind a passphrase is refused: nobody is there to be asked for it.
int NoPassphrase(char*, int, int, void*) { return -1; }

// All certificates of a file, so that one cut off at its end is found too.
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

// Throws LoadError unless gRPC can serve with them.
void Check(const PemFiles& pem, const TlsOptions& options) {
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
    throw LoadError(options.key.string() + ": is not the key of the certificate in " +
                    options.certificate.string());
  }
  if (options.client_authority) ParseCertificates(pem.client_authority, *options.client_authority);
}

// The files as gRPC asks for them: when it starts, and for every new connection.
class CertificateFiles {
 public:
  explicit CertificateFiles(const TlsOptions& options)
      : options_(options), files_(Paths(options)), pem_(Read()) {}

  grpc_ssl_certificate_config_reload_status Fetch(grpc_ssl_server_certificate_config** config)
      TRIPTYCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (files_.HasChanged()) ReadAnew();
    if (!is_new_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    is_new_ = false;
    const grpc_ssl_pem_key_cert_pair pair{pem_.key.c_str(), pem_.certificate.c_str()};
    // gRPC insists on an authority, also where no certificate is asked for that could lead to it.
    const std::string& roots = options_.client_authority ? pem_.client_authority : pem_.certificate;
    *config = grpc_ssl_server_certificate_config_create(roots.c_str(), &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

 private:
  static std::vector<std::filesystem::path> Paths(const TlsOptions& options) {
    std::vector<std::filesystem::path> paths = {options.certificate, options.key};
    if (options.client_authority) paths.push_back(*options.client_authority);
    return paths;
  }

  PemFiles Read() const {
    PemFiles pem{
        ReadText(options_.certificate, kMaxPemBytes), ReadText(options_.key, kMaxPemBytes), {}};
    if (options_.client_authority) {
      pem.client_authority = ReadText(*options_.client_authority, kMaxPemBytes);
    }
    Check(pem, options_);
    return pem;
  }

  void ReadAnew() TRIPTYCH_REQUIRES(mutex_) {
    try {
      pem_ = Read();
      is_new_ = true;
      spdlog::info("the certificate was read anew from {}", options_.certificate.string());
    } catch (const LoadError& e) {
      spdlog::error("the certificate stays as it was: {}", e.what());
    }
  }

  const TlsOptions options_;
  Mutex mutex_;
  WatchedFiles files_ TRIPTYCH_GUARDED_BY(mutex_);
  PemFiles pem_ TRIPTYCH_GUARDED_BY(mutex_);
  bool is_new_ TRIPTYCH_GUARDED_BY(mutex_) = true;
};

grpc_ssl_certificate_config_reload_status FetchConfig(void* files,
                                                      grpc_ssl_server_certificate_config** config) {
  return static_cast<CertificateFiles*>(files)->Fetch(config);
}

grpc_server_credentials* MakeCredentials(const TlsOptions& options, CertificateFiles* files) {
  return grpc_ssl_server_credentials_create_with_options(
      grpc_ssl_server_credentials_create_options_using_config_fetcher(
          options.client_authority ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                   : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
          FetchConfig, files));
}

// gRPC's C++ interface takes certificates once, or reads files that may not fit each other; its C
// interface asks for them at every connection, so that what it gets can be checked first.
#if GRPC_CPP_VERSION_MAJOR > 1 || GRPC_CPP_VERSION_MINOR >= 55
class ReloadedCredentials final : public grpc::ServerCredentials {
 public:
  ReloadedCredentials(const TlsOptions& options, std::unique_ptr<CertificateFiles> files)
      : grpc::ServerCredentials(MakeCredentials(options, files.get())), files_(std::move(files)) {}

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  const std::unique_ptr<CertificateFiles> files_;
};
#else
class ReloadedCredentials final : public grpc::ServerCredentials {
 public:
  ReloadedCredentials(const TlsOptions& options, std::unique_ptr<CertificateFiles> files)
      : files_(std::move(files)), credentials_(MakeCredentials(options, files_.get())) {}
  ~ReloadedCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  const std::unique_ptr<CertificateFiles> files_;
  grpc_server_credentials* const credentials_;
};
#endif

}  // namespace

std::shared_ptr<grpc::ServerCredentials> TlsCredentials(const TlsOptions& options) {
  return std::make_shared<ReloadedCredentials>(options,
                                               std::make_unique<CertificateFiles>(options));
}

}  // namespace triptych
