// Unix time, as responses report it.
#ifndef TRIPTYCH_SERVER_HTTP_UNIX_TIME_H_
#define TRIPTYCH_SERVER_HTTP_UNIX_TIME_H_

#include <chrono>
#include <cstdint>

namespace triptych::server {

// Seconds since 1970-01-01 UTC.
inline int64_t UnixTime() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_UNIX_TIME_H_
