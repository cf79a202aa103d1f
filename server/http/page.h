// The page that shows the caches and asks all models at once.
#ifndef TRIPTYCH_SERVER_HTTP_PAGE_H_
#define TRIPTYCH_SERVER_HTTP_PAGE_H_

#include <string_view>

#include "server/http/exchange.h"

namespace triptych::server {

// server/http/page/index.html, as it was when this was built.
extern const std::string_view kPageHtml;

// The same for everybody: what it shows it asks for by itself, with the token that its reader
// types. Runs no script and takes no style but its own, and talks to nobody but this server.
HttpResponse PageResponse();

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_PAGE_H_
