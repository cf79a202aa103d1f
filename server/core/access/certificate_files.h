// The server's TLS certificate, reloaded when its files change.
#ifndef TRIPTYCH_SERVER_CORE_ACCESS_CERTIFICATE_FILES_H_
#define TRIPTYCH_SERVER_CORE_ACCESS_CERTIFICATE_FILES_H_

#include <memory>
#include <string>

#include "engine/base/mutex.h"
#include "server/core/access/watched_file.h"
#include "server/core/transport_options.h"

namespace triptych::server {

// Contents of the files, in PEM, checked to fit each other.
struct Certificates {
  std::string certificate, key;
  std::string client_authority;  // empty if clients need no certificate
};

// Reads and checks the files of TlsOptions. Thread-safe.
class CertificateFiles {
 public:
  // Throws LoadError if the files cannot be used.
  explicit CertificateFiles(const TlsOptions& options);

  // The last usable contents of the files; a new object for each change. Unusable contents are
  // logged once.
  std::shared_ptr<const Certificates> Current() TRIPTYCH_EXCLUDES(mutex_);

 private:
  const TlsOptions options_;
  Mutex mutex_;
  WatchedFiles files_ TRIPTYCH_GUARDED_BY(mutex_);
  std::shared_ptr<const Certificates> certificates_ TRIPTYCH_GUARDED_BY(mutex_);
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_ACCESS_CERTIFICATE_FILES_H_
