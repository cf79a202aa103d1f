// The server's log, on stdout.
#ifndef TRIPTYCH_SERVER_LOGGING_H_
#define TRIPTYCH_SERVER_LOGGING_H_

#include <string>

namespace triptych::server {

enum class LogFormat { kText, kJson };

// Sets up spdlog's default logger. `level` is a name spdlog knows. In JSON every line is one
// object with time, level and message, and of requests with what RequestSummary has beside.
void SetUpLogging(LogFormat format, const std::string& level);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_LOGGING_H_
