// Models in Ollama's API: /api/tags, /api/ps and /api/show.
#ifndef TRIPTYCH_SERVER_HTTP_OLLAMA_MODELS_H_
#define TRIPTYCH_SERVER_HTTP_OLLAMA_MODELS_H_

#include <cstdint>
#include <string>

#include "engine/base/json.h"
#include "server/core/model_registry.h"
#include "server/http/exchange.h"

namespace triptych::server {

// Bodies of responses. `created`: the Unix time of the server's start. All models are loaded, so
// that both list the same ones.
std::string OllamaTags(const ModelRegistry& models, int64_t created);
std::string OllamaRunning(const ModelRegistry& models);

// The response to /api/show. REQUIRES: `body` is an object.
HttpResponse OllamaShow(const Json& body, const ModelRegistry& models, int64_t created);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_OLLAMA_MODELS_H_
