// Error responses in the format of OpenAI and Anthropic.
#ifndef TRIPTYCH_SERVER_HTTP_ERROR_RESPONSE_H_
#define TRIPTYCH_SERVER_HTTP_ERROR_RESPONSE_H_

#include <string>
#include <string_view>

#include "server/core/error.h"
#include "server/http/exchange.h"
#include "server/http/json_output.h"

namespace triptych::server {

// {"message", "type", "param", "code"}; "code" is the error's reason in lower case.
JsonOutput ErrorJson(const Error& error);
// {"type": "error", "error": ErrorJson}. Anthropic's clients need the type.
std::string ErrorBody(const Error& error);
HttpResponse ErrorResponse(const Error& error);

// An error of HTTP itself, such as a malformed request or an unknown path. `code` is for programs.
HttpResponse StatusResponse(int status, std::string_view code, const std::string& message);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_ERROR_RESPONSE_H_
