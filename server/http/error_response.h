// Error responses in OpenAI's format.
#ifndef TRIPTYCH_SERVER_HTTP_ERROR_RESPONSE_H_
#define TRIPTYCH_SERVER_HTTP_ERROR_RESPONSE_H_

#include <string>
#include <string_view>

#include "server/core/error.h"
#include "server/http/exchange.h"

namespace triptych::server {

// {"error": {"message", "type", "param", "code"}}; "code" is the error's reason in lower case.
std::string ErrorBody(const Error& error);
HttpResponse ErrorResponse(const Error& error);

// An error of HTTP itself, such as a malformed request or an unknown path. `code` is for programs.
HttpResponse StatusResponse(int status, std::string_view code, const std::string& message);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_ERROR_RESPONSE_H_
