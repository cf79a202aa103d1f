// Requests of Ollama's API, for text.
#ifndef TRIPTYCH_SERVER_HTTP_OLLAMA_REQUESTS_H_
#define TRIPTYCH_SERVER_HTTP_OLLAMA_REQUESTS_H_

#include <string>
#include <variant>

#include "engine/base/json.h"
#include "server/core/error.h"
#include "server/core/model_registry.h"
#include "server/http/chat_completions.h"
#include "server/http/completion_request.h"

namespace triptych::server {

// The model of that name, with or without Ollama's ":latest".
Result<const ModelInfo*> FindOllamaModel(const ModelRegistry& models, const std::string& name);

// A request without a prompt, which only asks that the model is loaded.
struct OllamaLoad {
  std::string model;
  bool is_chat = false;
};

// A prompt is rendered as a chat of the user, unless it is `raw` or the model lacks a template:
// then it is a completion. REQUIRES: `body` is an object and outlives the result.
using OllamaRequest = std::variant<ChatRequest, CompletionRequest, OllamaLoad>;
Result<OllamaRequest> ParseOllamaChat(const JsonBody& body, const ModelRegistry& models);
Result<OllamaRequest> ParseOllamaGenerate(const JsonBody& body, const ModelRegistry& models,
                                          const TextDefaults& defaults);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_OLLAMA_REQUESTS_H_
