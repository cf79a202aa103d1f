#include "server/http/cross_origin.h"

#include <algorithm>

namespace triptych::server {

std::string CrossOrigin::Headers(std::string_view origin) const {
  const bool allowed = !origin.empty() &&
                       std::any_of(origins_.begin(), origins_.end(), [&](const auto& allowed_one) {
                         return allowed_one == "*" || allowed_one == origin;
                       });
  if (!allowed) return "";
  return "Access-Control-Allow-Origin: " + std::string(origin) +
         "\r\nVary: Origin\r\nAccess-Control-Expose-Headers: x-request-id, Retry-After, "
         "Retry-After-Ms\r\n";
}

std::string CrossOrigin::PreflightHeaders(std::string_view origin,
                                          std::string_view request_headers) const {
  std::string lines = Headers(origin);
  if (lines.empty()) return "";
  lines += "Access-Control-Allow-Methods: GET, HEAD, POST\r\nAccess-Control-Max-Age: 600\r\n";
  if (!request_headers.empty()) {
    lines += "Access-Control-Allow-Headers: " + std::string(request_headers) + "\r\n";
  }
  return lines;
}

}  // namespace triptych::server
