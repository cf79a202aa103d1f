// Errors of requests as values, independent of the transport.
#ifndef TRIPTYCH_SERVER_CORE_ERROR_H_
#define TRIPTYCH_SERVER_CORE_ERROR_H_

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace triptych::server {

enum class ErrorCode {
  kInvalidArgument,    // a field of the request is invalid
  kNotFound,           // no such model
  kAlreadyExists,      // the request's own id is that of a live request
  kResourceExhausted,  // a queue, a client's limit, memory, or the client's stream buffer
  kUnavailable,        // the server is starting or draining
  kInternal,           // a step of the model failed
  kCancelled,          // by the client
  kUnauthenticated,    // no known credentials
  kPermissionDenied,   // the caller lacks the scope
};

// Copyable and immutable by convention. Construct it with the functions below.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  // One line. For an invalid argument it continues from the field's name.
  std::string description;
  // kInvalidArgument: the field's path, such as "sampling.top_p" or "stop[1]". Empty otherwise.
  std::string field = {};
  // For programs, such as QUEUE_FULL: one of the reasons that inference.proto lists.
  std::string reason = {};
  std::map<std::string, std::string> metadata = {};  // details of the reason
  // Delay after which the same request may succeed.
  std::optional<std::chrono::milliseconds> retry_delay = {};

  // The field and the description.
  std::string Message() const { return field.empty() ? description : field + " " + description; }
};

// `description` continues from the field's name: "is 3; allowed: 0 to 2".
Error InvalidArgument(std::string field, std::string description);
// The prompt does not fit into the model's context or cache.
Error ContextLengthExceeded(std::string field, std::string description);
// `loaded` lists the loaded models.
Error ModelNotFound(const std::string& name, const std::string& loaded);
// The client has a live request of that id, its own.
Error RequestIdTaken(std::string_view id);
Error QueueFull();
Error QueueTimeout();
// The client has `live` requests; at most `most` are allowed.
Error ClientLimit(int64_t live, int64_t most);
// The client may send `rate` requests per second, the next one after `delay`.
Error ClientRate(double rate, std::chrono::milliseconds delay);
// The tokenization queue is full, for all clients or for this one.
Error TextsWaiting();
// `most` calls of the kind `calls` are live, of all clients together: the limit.
Error StatisticsLimit(std::string_view calls, size_t most);
Error SlowReader(size_t unread_bytes);
// The server drains.
Error Draining();
Error Cancelled();
// A step of the model failed.
Error Internal(std::string description);
// Models are still being loaded.
Error Starting();
Error Unauthenticated(std::string description);
// The process is close to its memory limit.
Error MemoryPressure();
// `client` lacks `scope`.
Error PermissionDenied(const std::string& client, std::string_view scope);

// Text from a client in quotation marks, safe in an error message: one line, without control
// characters, and cut so that the message fits in a header.
std::string Quote(std::string_view text);

// A value or an error.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : content_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return content_.index() == 0; }

  // REQUIRES: ok(), which std::get checks.
  const T& value() const& { return std::get<0>(content_); }
  T& value() & { return std::get<0>(content_); }
  T&& value() && { return std::get<0>(std::move(content_)); }

  // REQUIRES: !ok(), which std::get checks.
  const Error& error() const { return std::get<1>(content_); }

 private:
  std::variant<T, Error> content_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_ERROR_H_
