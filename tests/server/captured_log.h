// Captured log of a test's server, instead of standard output.
#ifndef TRIPTYCH_TESTS_SERVER_CAPTURED_LOG_H_
#define TRIPTYCH_TESTS_SERVER_CAPTURED_LOG_H_

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace triptych::server {

// Captures the log during its lifetime, at every level. Only one can exist at a time.
class CapturedLog {
 public:
  CapturedLog() : before_(spdlog::default_logger()) {
    auto logger = std::make_shared<spdlog::logger>("captured", sink_);
    logger->set_level(spdlog::level::trace);
    spdlog::set_default_logger(std::move(logger));
  }
  ~CapturedLog() { spdlog::set_default_logger(before_); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  // Lines of "LEVEL message".
  std::string text() const { return sink_->text(); }

 private:
  class Sink final : public spdlog::sinks::base_sink<std::mutex> {
   public:
    std::string text() {
      const std::lock_guard lock(mutex_);
      return text_;
    }

   private:
    void sink_it_(const spdlog::details::log_msg& message) override {
      const auto level = spdlog::level::to_string_view(message.level);
      text_.append(level.data(), level.size()).append(" ");
      text_.append(message.payload.data(), message.payload.size()).append("\n");
    }
    void flush_() override {}

    std::string text_;
  };

  const std::shared_ptr<Sink> sink_ = std::make_shared<Sink>();
  const std::shared_ptr<spdlog::logger> before_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_TESTS_SERVER_CAPTURED_LOG_H_
