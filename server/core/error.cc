#include "server/core/error.h"

#include <spdlog/fmt/fmt.h>

#include "engine/base/quoted.h"

namespace triptych::server {
namespace {

// Retry delay for queues and limits.
constexpr std::chrono::milliseconds kRetryDelay{500};
// Retry delay for loading models and for memory.
constexpr std::chrono::milliseconds kLongRetryDelay{1000};

constexpr size_t kQuotedBytes = 64;  // of a client's text

}  // namespace

Error InvalidArgument(std::string field, std::string description) {
  return {.code = ErrorCode::kInvalidArgument,
          .description = std::move(description),
          .field = std::move(field),
          .reason = "INVALID_FIELD"};
}

Error ContextLengthExceeded(std::string field, std::string description) {
  return {.code = ErrorCode::kInvalidArgument,
          .description = std::move(description),
          .field = std::move(field),
          .reason = "CONTEXT_LENGTH_EXCEEDED"};
}

Error ModelNotFound(const std::string& name, const std::string& loaded) {
  return {.code = ErrorCode::kNotFound,
          .description = fmt::format("model {} is not loaded; loaded: {}", Quote(name), loaded),
          .reason = "MODEL_NOT_FOUND",
          .metadata = {{"model", Printable(name, kQuotedBytes)}}};
}

Error RequestIdTaken(std::string_view id) {
  return {.code = ErrorCode::kAlreadyExists,
          .description = fmt::format("is {}, which is live; allowed: one that is not", Quote(id)),
          .field = "request_id",
          .reason = "REQUEST_ID_TAKEN"};
}

Error QueueFull() {
  return {.code = ErrorCode::kResourceExhausted,
          .description = "the model's queue is full",
          .reason = "QUEUE_FULL",
          .retry_delay = kRetryDelay};
}

Error QueueTimeout() {
  return {.code = ErrorCode::kResourceExhausted,
          .description = "the request waited too long in the queue",
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
          .description =
              fmt::format("the client exceeds its rate; allowed: {} requests per second", rate),
          .reason = "CLIENT_RATE",
          .retry_delay = delay};
}

Error TextsWaiting() {
  return {.code = ErrorCode::kResourceExhausted,
          .description = "the tokenization queue is full",
          .reason = "TEXTS_WAITING",
          .retry_delay = kRetryDelay};
}

Error StatisticsLimit(std::string_view calls, size_t most) {
  return {.code = ErrorCode::kResourceExhausted,
          .description = fmt::format("too many {1}; allowed: {0}", most, calls),
          .reason = "STATISTICS_LIMIT",
          .retry_delay = kRetryDelay};
}

Error SlowReader(size_t unread_bytes) {
  return {.code = ErrorCode::kResourceExhausted,
          .description =
              fmt::format("the client does not read its stream: {} bytes are unread", unread_bytes),
          .reason = "SLOW_READER"};
}

Error Draining() {
  return {.code = ErrorCode::kUnavailable,
          .description = "the server is draining",
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
          .description = "the models are still loading",
          .reason = "STARTING",
          .retry_delay = kLongRetryDelay};
}

Error MemoryPressure() {
  return {.code = ErrorCode::kResourceExhausted,
          .description = "the server has not enough memory for another request",
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
          .description =
              fmt::format("scope '{}' is required; client '{}' does not have it", scope, client),
          .reason = "SCOPE_MISSING",
          .metadata = {{"client", client}, {"scope", std::string(scope)}}};
}

std::string Quote(std::string_view text) { return Quoted(text, kQuotedBytes); }

}  // namespace triptych::server
