// What a request asks for.
#ifndef TRIPTYCH_SERVER_HTTP_REQUEST_TARGET_H_
#define TRIPTYCH_SERVER_HTTP_REQUEST_TARGET_H_

#include <map>
#include <string>
#include <string_view>

#include "server/core/error.h"

namespace triptych::server {

struct RequestTarget {
  std::string authority;  // HOST[:PORT], if the target names one; it goes before the field Host
  std::string path;       // as it was sent: proxies have rules of it
  std::map<std::string, std::string> query;  // decoded
};

// An error if a parameter of the query is given twice.
Result<RequestTarget> ParseTarget(std::string_view target);

// What is no escape stands for itself.
std::string PercentDecode(std::string_view text);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_REQUEST_TARGET_H_
