#include "server/core/log.h"

#include <spdlog/spdlog.h>

#include <exception>
#include <iterator>

namespace triptych::server {

void LogFormatted(spdlog::level::level_enum level, fmt::string_view format, fmt::format_args args) {
  if (!spdlog::should_log(level)) return;
  try {
    fmt::memory_buffer line;
    fmt::vformat_to(std::back_inserter(line), format, args);
    spdlog::log(level, fmt::string_view(line.data(), line.size()));
  } catch (const std::exception& e) {
    spdlog::error(e.what());
  }
}

}  // namespace triptych::server
