// Web page that shows the caches and sends a prompt to all models.
#ifndef TRIPTYCH_SERVER_HTTP_PAGE_H_
#define TRIPTYCH_SERVER_HTTP_PAGE_H_

#include <string_view>

#include "server/http/exchange.h"

namespace triptych::server {

// Contents of server/http/page/index.html at build time.
extern const std::string_view kPageHtml;

// The page, the same for every caller: it fetches its data itself, with the token that the reader
// types. Its Content-Security-Policy allows only its own script and style, and requests only to
// this server.
HttpResponse PageResponse();

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_PAGE_H_
