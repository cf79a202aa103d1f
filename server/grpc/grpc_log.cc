#include "server/grpc/grpc_log.h"

#include <grpc/support/log.h>
#include <grpcpp/version_info.h>

#include <chrono>
#include <cstdint>
#include <utility>

#include "engine/base/mutex.h"
#include "engine/base/quoted.h"
#include "server/core/log.h"

namespace triptych::server {

#if GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR < 66
namespace {

// Limits log lines per second, and counts the lines that it drops.
class LineBudget {
 public:
  // Number of lines dropped before this one; -1 if this one is to be dropped.
  int64_t Take() TRIPTYCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (now - second_ >= std::chrono::seconds(1)) {
      second_ = now;
      lines_ = 0;
    }
    if (++lines_ > kGrpcLinesPerSecond) {
      ++left_out_;
      return -1;
    }
    return std::exchange(left_out_, 0);
  }

 private:
  Mutex mutex_;
  std::chrono::steady_clock::time_point second_ TRIPTYCH_GUARDED_BY(mutex_);
  int lines_ TRIPTYCH_GUARDED_BY(mutex_) = 0;
  int64_t left_out_ TRIPTYCH_GUARDED_BY(mutex_) = 0;
};

spdlog::level::level_enum Level(gpr_log_severity severity) {
  switch (severity) {
    case GPR_LOG_SEVERITY_DEBUG:
      return spdlog::level::debug;
    case GPR_LOG_SEVERITY_INFO:
      return spdlog::level::info;
    case GPR_LOG_SEVERITY_ERROR:
      break;
  }
  return spdlog::level::warn;  // an error of one connection, not of the server
}

void LogLine(gpr_log_func_args* args) {
  constexpr size_t kMaxBytes = 500;
  static LineBudget* const budget =
      new LineBudget;  // never destroyed: gRPC's threads outlive statics
  const int64_t left_out = budget->Take();
  if (left_out < 0) return;
  if (left_out > 0) LogWarning("gRPC: {} lines dropped", left_out);
  Log(Level(args->severity), "gRPC: {}", Printable(args->message, kMaxBytes));
}

}  // namespace

void LogGrpcErrors() { gpr_set_log_function(LogLine); }
#else
void LogGrpcErrors() {}
#endif

}  // namespace triptych::server
