#include "server/logging.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/core/stats/request_summary.h"

namespace triptych::server {
namespace {

// Formats the message as an escaped JSON string.
class JsonMessageFlag final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    const std::string_view text(message.payload.data(), message.payload.size());
    const std::string json =
        nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    out.append(json.data(), json.data() + json.size());
  }

  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<JsonMessageFlag>();
  }
};

}  // namespace

void SetUpLogging(LogFormat format, const std::string& level) {
  auto logger = std::make_shared<spdlog::logger>(
      "triptych", std::make_shared<spdlog::sinks::stdout_color_sink_mt>());
  spdlog::drop(kJsonLogger);
  if (format == LogFormat::kJson) {
    auto members = std::make_shared<spdlog::logger>(
        kJsonLogger, std::make_shared<spdlog::sinks::stdout_color_sink_mt>());
    members->set_formatter(std::make_unique<spdlog::pattern_formatter>(
        R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})", spdlog::pattern_time_type::utc));
    members->set_level(spdlog::level::from_str(level));
    members->flush_on(spdlog::level::info);
    spdlog::register_logger(std::move(members));
    auto formatter = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
    formatter->add_flag<JsonMessageFlag>('*').set_pattern(
        R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l","message":%*})");
    logger->set_formatter(std::move(formatter));
  } else {
    logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%-7l%$ %v");
  }
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace triptych::server
