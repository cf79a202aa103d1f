// Page tokens of paginated lists.
#ifndef TRIPTYCH_SERVER_CORE_STATS_PAGE_TOKENS_H_
#define TRIPTYCH_SERVER_CORE_STATS_PAGE_TOKENS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "server/core/error.h"

namespace triptych::server {

// Makes and reads page tokens. A token is valid for the query that it was made for, in this
// process; to clients it is opaque. It need not be secret: a forged token only yields another page
// that the caller may see anyway. Thread-safe.
class PageTokens {
 public:
  PageTokens();

  // The token of the page after `position`. `query` identifies the list and the caller.
  std::string Make(std::string_view query, uint64_t position) const;
  // The position of `token`; 0 for an empty token (the first page).
  Result<uint64_t> Read(std::string_view query, std::string_view token) const;

 private:
  const std::string process_;
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_STATS_PAGE_TOKENS_H_
