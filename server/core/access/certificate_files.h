// The server's certificate for TLS, as its files have it now.
#ifndef TRIPTYCH_SERVER_CORE_ACCESS_CERTIFICATE_FILES_H_
#define TRIPTYCH_SERVER_CORE_ACCESS_CERTIFICATE_FILES_H_

#include <memory>
#include <string>

#include "engine/base/mutex.h"
#include "server/core/access/watched_file.h"
#include "server/core/transport_options.h"

namespace triptych::server {

// What the files hold, in PEM. They fit each other.
struct Certificates {
  std::string certificate, key;
  std::string client_authority;  // empty if clients need no certificate
};

// Thread-safe.
class CertificateFiles {
 public:
  // Throws LoadError.
  explicit CertificateFiles(const TlsOptions& options);

  // What they hold now, or last held that can be used: another object whenever that changes. One
  // that cannot be used is logged once.
  std::shared_ptr<const Certificates> Current() TRIPTYCH_EXCLUDES(mutex_);

 private:
  const TlsOptions options_;
  Mutex mutex_;
  WatchedFiles files_ TRIPTYCH_GUARDED_BY(mutex_);
  std::shared_ptr<const Certificates> certificates_ TRIPTYCH_GUARDED_BY(mutex_);
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_ACCESS_CERTIFICATE_FILES_H_
