// Parser for request targets.
#ifndef TRIPTYCH_SERVER_HTTP_REQUEST_TARGET_H_
#define TRIPTYCH_SERVER_HTTP_REQUEST_TARGET_H_

#include <map>
#include <string>
#include <string_view>

#include "server/core/error.h"

namespace triptych::server {

struct RequestTarget {
  std::string authority;  // HOST[:PORT] of an absolute target, which overrides the Host header
  std::string path;       // not decoded, since proxies' rules apply to it as sent
  std::map<std::string, std::string> query;  // decoded
};

// An error if a parameter of the query is given twice.
Result<RequestTarget> ParseTarget(std::string_view target);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_REQUEST_TARGET_H_
