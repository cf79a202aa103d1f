// Logging to stdout, as text or JSON lines.
#ifndef TRIPTYCH_SERVER_LOGGING_H_
#define TRIPTYCH_SERVER_LOGGING_H_

#include <string>

namespace triptych::server {

enum class LogFormat { kText, kJson };

// Sets up spdlog's default logger. `level` is the name of an spdlog level. In JSON each line is one
// object with time, level and message; a request's line adds the members of RequestSummary.
void SetUpLogging(LogFormat format, const std::string& level);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_LOGGING_H_
