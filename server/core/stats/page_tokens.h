// Where a list goes on.
#ifndef TRIPTYCH_SERVER_CORE_STATS_PAGE_TOKENS_H_
#define TRIPTYCH_SERVER_CORE_STATS_PAGE_TOKENS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "server/core/error.h"

namespace triptych::server {

// Makes and reads the tokens of pages. A token is good for the query that it was made for, in this
// process; to clients it is opaque. It is no secret: whoever forges one sees another page of what
// they may see anyway. Thread-safe.
class PageTokens {
 public:
  PageTokens();

  // That of the page behind `position`. `query` says what is listed, and for whom.
  std::string Make(std::string_view query, uint64_t position) const;
  // The position; 0 of an empty token, which is the first page's.
  Result<uint64_t> Read(std::string_view query, std::string_view token) const;

 private:
  const std::string process_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_STATS_PAGE_TOKENS_H_
