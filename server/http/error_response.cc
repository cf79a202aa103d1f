#include "server/http/error_response.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <optional>
#include <string_view>

#include "server/http/json_output.h"

namespace triptych::server {
namespace {

struct Kind {
  int status;
  const char* type;
};

constexpr Kind kInvalidRequest = {400, "invalid_request_error"};
constexpr Kind kOverloaded = {503, "overloaded_error"};
constexpr Kind kServerError = {500, "server_error"};
constexpr std::chrono::milliseconds kDefaultRetryDelay{1000};  // for status 503

Kind KindOf(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
      return kInvalidRequest;
    case ErrorCode::kNotFound:
      return {404, "not_found_error"};
    case ErrorCode::kAlreadyExists:
      return {409, "conflict_error"};
    case ErrorCode::kResourceExhausted:
      // 429 for limits of one client, 503 for limits of the server.
      if (error.reason == "CLIENT_LIMIT" || error.reason == "CLIENT_RATE" ||
          error.reason == "TEXTS_WAITING" || error.reason == "SLOW_READER") {
        return {429, "rate_limit_error"};
      }
      return kOverloaded;
    case ErrorCode::kUnavailable:
      return kOverloaded;
    case ErrorCode::kInternal:
    case ErrorCode::kCancelled:  // the client is gone
      return kServerError;
    case ErrorCode::kUnauthenticated:
      return {401, "authentication_error"};
    case ErrorCode::kPermissionDenied:
      return {403, "permission_error"};
  }
  return kServerError;
}

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

JsonOutput Members(const std::string& message, const char* type, const std::string& param,
                   const std::string& code) {
  return {{"message", message},
          {"type", type},
          {"param", param.empty() ? JsonOutput() : JsonOutput(param)},
          {"code", code.empty() ? JsonOutput() : JsonOutput(code)}};
}

std::string Body(const JsonOutput& members) {
  return ToText({{"type", "error"}, {"error", members}});
}

const char* TypeOf(int status) {
  switch (status) {
    case 404:
      return "not_found_error";
    case 503:
      return kOverloaded.type;
    default:
      return status >= 500 ? kServerError.type : kInvalidRequest.type;
  }
}

}  // namespace

JsonOutput ErrorJson(const Error& error) {
  const std::string param = error.reason == "MODEL_NOT_FOUND" ? "model" : error.field;
  return Members(error.Message(), KindOf(error).type, param, Lower(error.reason));
}

std::string ErrorBody(const Error& error) { return Body(ErrorJson(error)); }

HttpResponse ErrorResponse(const Error& error) {
  HttpResponse response{.status = KindOf(error).status, .body = ErrorBody(error)};
  std::optional<std::chrono::milliseconds> delay = error.retry_delay;
  if (!delay && response.status == 503) delay = kDefaultRetryDelay;
  if (delay) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(*delay);
    response.headers.emplace_back("Retry-After", std::to_string(seconds.count()));
    response.headers.emplace_back("Retry-After-Ms", std::to_string(delay->count()));
  }
  if (response.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

HttpResponse StatusResponse(int status, std::string_view code, const std::string& message) {
  return {.status = status, .body = Body(Members(message, TypeOf(status), "", std::string(code)))};
}

}  // namespace triptych::server
