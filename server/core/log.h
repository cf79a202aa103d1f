// Log lines of the server.
#ifndef TRIPTYCH_SERVER_CORE_LOG_H_
#define TRIPTYCH_SERVER_CORE_LOG_H_

#include <spdlog/common.h>

#include <utility>

namespace triptych::server {

// Formats and logs one line. spdlog's own functions compile all of fmt into each source that calls
// them. Never throws: a line that memory is too short for is replaced by the error.
void LogFormatted(spdlog::level::level_enum level, fmt::string_view format, fmt::format_args args);

template <typename... Args>
void Log(spdlog::level::level_enum level, fmt::format_string<Args...> format, Args&&... args) {
  LogFormatted(level, format, fmt::make_format_args(args...));
}
template <typename... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  Log(spdlog::level::info, format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogWarning(fmt::format_string<Args...> format, Args&&... args) {
  Log(spdlog::level::warn, format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  Log(spdlog::level::err, format, std::forward<Args>(args)...);
}

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_LOG_H_
