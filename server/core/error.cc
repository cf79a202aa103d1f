#include "server/core/error.h"

#include <spdlog/fmt/fmt.h>

#include "engine/base/quoted.h"

namespace triptych {
namespace {

// How long a client should wait for room in the queue.
constexpr std::chrono::milliseconds kRetryDelay{500};

constexpr size_t kQuotedBytes = 64;  // of what a client sent

}  // namespace

Error InvalidArgument(std::string field, std::string description) {
  return {.code = ErrorCode::kInvalidArgument,
          .description = std::move(description),
          .field = std::move(field)};
}

Error ModelNotFound(const std::string& name, const std::string& loaded) {
  return {.code = ErrorCode::kNotFound,
          .description = fmt::format("model {} is not loaded; loaded: {}", Quote(name), loaded),
          .reason = "MODEL_NOT_FOUND",
          .metadata = {{"model", Printable(name, kQuotedBytes)}}};
}

Error QueueFull() {
  return {.code = ErrorCode::kResourceExhausted,
          .description = "the model's queue is full",
          .reason = "QUEUE_FULL",
          .retry_delay = kRetryDelay};
}

Error SlowReader(size_t unread_bytes) {
  return {.code = ErrorCode::kResourceExhausted,
          .description = fmt::format("the client does not read its stream: {} bytes are waiting",
                                     unread_bytes),
          .reason = "SLOW_READER"};
}

Error ShuttingDown() {
  return {.code = ErrorCode::kUnavailable, .description = "the server is shutting down"};
}

Error Cancelled() {
  return {.code = ErrorCode::kCancelled, .description = "the client cancelled the request"};
}

Error Internal(std::string description) {
  return {.code = ErrorCode::kInternal, .description = std::move(description)};
}

std::string Quote(std::string_view text) { return Quoted(text, kQuotedBytes); }

}  // namespace triptych
