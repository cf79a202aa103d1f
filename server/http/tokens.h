// /tokenize and /detokenize, in the shapes of Triptych, vLLM and llama.cpp.
#ifndef TRIPTYCH_SERVER_HTTP_TOKENS_H_
#define TRIPTYCH_SERVER_HTTP_TOKENS_H_

#include "engine/base/json.h"
#include "server/core/server_core.h"
#include "server/http/completion_request.h"
#include "server/http/exchange.h"

namespace triptych::server {

// The member that holds the text names the shape: "text", vLLM's "prompt" or "messages", or
// llama.cpp's "content". REQUIRES: `body` is an object.
HttpResponse Tokenize(const JsonBody& body, const ServerCore& core, const TextDefaults& defaults);

// "token_ids", or "tokens" as in vLLM and llama.cpp, whose names for the text the response has
// both. REQUIRES: `body` is an object.
HttpResponse Detokenize(const Json& body, const ServerCore& core);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_TOKENS_H_
