// JSON values of responses.
#ifndef TRIPTYCH_SERVER_HTTP_JSON_OUTPUT_H_
#define TRIPTYCH_SERVER_HTTP_JSON_OUTPUT_H_

#include <nlohmann/json.hpp>
#include <string>

namespace triptych::server {

using JsonOutput = nlohmann::ordered_json;  // keeps the order of members

// One line of JSON. Invalid UTF-8 becomes U+FFFD.
inline std::string ToText(const JsonOutput& value) {
  return value.dump(-1, ' ', false, JsonOutput::error_handler_t::replace);
}

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_JSON_OUTPUT_H_
