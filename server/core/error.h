// Errors of a request as values: what a client is told, in no transport's terms.
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
  kInvalidArgument,    // a field of the request
  kNotFound,           // what it names is not here
  kResourceExhausted,  // the queue, the client's share, or its own buffer
  kUnavailable,        // the server is shutting down
  kInternal,           // the model could not be computed
  kCancelled,          // the client is gone
  kUnauthenticated,    // nobody knows who calls
  kPermissionDenied,   // who calls may not
};

// Copyable and immutable by convention; made by the functions below.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  // What is wrong, in one line; of an invalid argument without the field's name before it.
  std::string description;
  // kInvalidArgument: the field's path, such as "sampling.top_p" or "stop[1]". Empty otherwise.
  std::string field = {};
  // For programs, such as QUEUE_FULL: one of those that inference.proto lists.
  std::string reason = {};
  std::map<std::string, std::string> metadata = {};  // of the reason
  // After which the same request may succeed.
  std::optional<std::chrono::milliseconds> retry_delay = {};

  // The whole line.
  std::string Message() const { return field.empty() ? description : field + " " + description; }
};

// `description` goes on from the field's name: "is 3; allowed: 0 to 2".
Error InvalidArgument(std::string field, std::string description);
// `loaded` lists the models that there are.
Error ModelNotFound(const std::string& name, const std::string& loaded);
Error QueueFull();
Error QueueTimeout();
// The client has `live` requests, which may be `most`.
Error ClientLimit(int64_t live, int64_t most);
// The client may send `rate` requests a second, and the next one after `delay`.
Error ClientRate(double rate, std::chrono::milliseconds delay);
// As many long texts wait to be tokenized as may, of all clients or of this one.
Error TextsWaiting();
// `most` calls of that kind are live, of all clients together.
Error StatisticsLimit(std::string_view calls, size_t most);
Error SlowReader(size_t unread_bytes);
// The server ends, and takes no new requests.
Error Draining();
Error Cancelled();
// A step of the model failed.
Error Internal(std::string description);
// Models are still being loaded.
Error Starting();
Error Unauthenticated(std::string description);
// The process is near the end of the memory that it may take.
Error MemoryPressure();
// `client` lacks `scope`.
Error PermissionDenied(const std::string& client, std::string_view scope);

// What a client sent, between quotation marks, as it may stand in a message: one line, without
// control characters, and cut to a length that fits into a header with everything else.
std::string Quote(std::string_view text);

// A value, or why there is none.
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
