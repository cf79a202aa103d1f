#include "server/grpc/tls_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpcpp/version_info.h>

#include <memory>
#include <string>
#include <utility>

#include "engine/base/mutex.h"
#include "server/core/access/certificate_files.h"

namespace triptych::server {
namespace {

// Hands the files to gRPC, which fetches them at its start and for each new connection.
class FetchedCertificates {
 public:
  explicit FetchedCertificates(std::shared_ptr<CertificateFiles> files)
      : files_(std::move(files)), asks_clients_(!files_->Current()->client_authority.empty()) {}

  bool asks_clients() const { return asks_clients_; }

  grpc_ssl_certificate_config_reload_status Fetch(grpc_ssl_server_certificate_config** config)
      TRIPTYCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    std::shared_ptr<const Certificates> now = files_->Current();
    if (now == fetched_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    fetched_ = std::move(now);
    const grpc_ssl_pem_key_cert_pair pair{fetched_->key.c_str(), fetched_->certificate.c_str()};
    // gRPC requires roots even if no client certificate is requested.
    const std::string& roots = asks_clients_ ? fetched_->client_authority : fetched_->certificate;
    *config = grpc_ssl_server_certificate_config_create(roots.c_str(), &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

 private:
  const std::shared_ptr<CertificateFiles> files_;
  const bool asks_clients_;
  Mutex mutex_;
  std::shared_ptr<const Certificates> fetched_ TRIPTYCH_GUARDED_BY(mutex_);
};

grpc_ssl_certificate_config_reload_status FetchConfig(void* files,
                                                      grpc_ssl_server_certificate_config** config) {
  return static_cast<FetchedCertificates*>(files)->Fetch(config);
}

grpc_server_credentials* MakeCredentials(FetchedCertificates* files) {
  return grpc_ssl_server_credentials_create_with_options(
      grpc_ssl_server_credentials_create_options_using_config_fetcher(
          files->asks_clients() ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
          FetchConfig, files));
}

// gRPC's C++ interface takes certificates once, or reads files that may not fit each other. The C
// interface fetches them for every connection, so they can be checked first.
#if GRPC_CPP_VERSION_MAJOR > 1 || GRPC_CPP_VERSION_MINOR >= 55
class ReloadedCredentials final : public grpc::ServerCredentials {
 public:
  explicit ReloadedCredentials(std::unique_ptr<FetchedCertificates> files)
      : grpc::ServerCredentials(MakeCredentials(files.get())), files_(std::move(files)) {}

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  const std::unique_ptr<FetchedCertificates> files_;
};
#else
class ReloadedCredentials final : public grpc::ServerCredentials {
 public:
  explicit ReloadedCredentials(std::unique_ptr<FetchedCertificates> files)
      : files_(std::move(files)), credentials_(MakeCredentials(files_.get())) {}
  ~ReloadedCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  const std::unique_ptr<FetchedCertificates> files_;
  grpc_server_credentials* const credentials_;
};
#endif

}  // namespace

std::shared_ptr<grpc::ServerCredentials> TlsCredentials(std::shared_ptr<CertificateFiles> files) {
  return std::make_shared<ReloadedCredentials>(
      std::make_unique<FetchedCertificates>(std::move(files)));
}

}  // namespace triptych::server
