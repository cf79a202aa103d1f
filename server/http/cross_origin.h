// CORS: access of web pages from other origins.
#ifndef TRIPTYCH_SERVER_HTTP_CROSS_ORIGIN_H_
#define TRIPTYCH_SERVER_HTTP_CROSS_ORIGIN_H_

#include <string>
#include <string_view>
#include <vector>

#include "server/http/exchange.h"

namespace triptych::server {

// Origins whose pages may read responses. Thread-safe.
class CrossOrigin {
 public:
  // `origins`: scheme://host[:port], or "*" for every origin; none by default.
  explicit CrossOrigin(std::vector<std::string> origins) : origins_(std::move(origins)) {}

  // Header lines of a response to a request from `origin`; empty unless the origin is allowed.
  std::string Headers(std::string_view origin) const;
  // The same of a response to a preflight (OPTIONS), which asked for `request_headers`.
  std::string PreflightHeaders(std::string_view origin, std::string_view request_headers) const;

 private:
  const std::vector<std::string> origins_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_CROSS_ORIGIN_H_
