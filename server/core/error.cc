#include "server/core/error.h"

#include <spdlog/fmt/fmt.h>

#include "engine/base/quoted.h"

namespace triptych::server {
namespace {

// How long a client should wait for room in the queue.
constexpr std::chrono::milliseconds kRetryDelay{500};
// And for models, or for memory.
constexpr std::chrono::milliseconds kLongRetryDelay{1000};

constexpr size_t kQuotedBytes = 64;  // of what a client sent

}  // namespace

Error InvalidArgument(std::string field, std::string description) {
  return {.code = ErrorCode::kInvalidArgument,
          .description = std::move(description),
          .field = std::move(field),
          .reason = "INVALID_FIELD"};
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

Error QueueTimeout() {
  return {.code = ErrorCode::kResourceExhausted,
          .description = "the request waited too long for its turn",
          .reason = "QUEUE_TIMEOUT",
          .retry_delay = kRetryDelay};
}

Error ClientLimit(int64_t live, int64_t most) {
  return {.code = ErrorCode::kResourceExhausted,
          .description = fmt::format("the client has {} live requests; allowed: {}", live, most),
          .reason = "CLIENT_LIMIT",
          .retry_delay = kRetryDelay};
}

Error ClientRate(double rate, std::chrono::milliseconds delay) {
  return {.code = ErrorCode::kResourceExhausted,
          .description = fmt::format("the client sends more than {} requests a second", rate),
          .reason = "CLIENT_RATE",
          .retry_delay = delay};
}

Error TextsWaiting() {
  return {.code = ErrorCode::kResourceExhausted,
          .description = "too many long texts wait to be tokenized",
          .reason = "TEXTS_WAITING",
          .retry_delay = kRetryDelay};
}

Error StatisticsLimit(std::string_view calls, size_t most) {
  return {.code = ErrorCode::kResourceExhausted,
          .description = fmt::format("{} {} are live, and no more are allowed", most, calls),
          .reason = "STATISTICS_LIMIT",
          .retry_delay = kRetryDelay};
}

Error SlowReader(size_t unread_bytes) {
  return {.code = ErrorCode::kResourceExhausted,
          .description = fmt::format("the client does not read its stream: {} bytes are waiting",
                                     unread_bytes),
          .reason = "SLOW_READER"};
}

Error Draining() {
  return {.code = ErrorCode::kUnavailable,
          .description = "the server is shutting down",
          .reason = "DRAINING"};
}

Error Cancelled() {
  return {.code = ErrorCode::kCancelled,
          .description = "the client cancelled the request",
          .reason = "CANCELLED"};
}

Error Internal(std::string description) {
  return {
      .code = ErrorCode::kInternal, .description = std::move(description), .reason = "STEP_FAILED"};
}

Error Starting() {
  return {.code = ErrorCode::kUnavailable,
          .description = "the models are being loaded",
          .reason = "STARTING",
          .retry_delay = kLongRetryDelay};
}

Error MemoryPressure() {
  return {.code = ErrorCode::kResourceExhausted,
          .description = "the server has no memory left for another request",
          .reason = "MEMORY_PRESSURE",
          .retry_delay = kLongRetryDelay};
}

Error Unauthenticated(std::string description) {
  return {.code = ErrorCode::kUnauthenticated,
          .description = std::move(description),
          .reason = "UNAUTHENTICATED"};
}

Error PermissionDenied(const std::string& client, std::string_view scope) {
  return {.code = ErrorCode::kPermissionDenied,
          .description = fmt::format("this takes the scope {}, which {} has not", scope, client),
          .reason = "SCOPE_MISSING",
          .metadata = {{"client", client}, {"scope", std::string(scope)}}};
}

std::string Quote(std::string_view text) { return Quoted(text, kQuotedBytes); }

}  // namespace triptych::server
