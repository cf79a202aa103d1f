// Requests of OpenAI's completions and chat completions.
#ifndef TRIPTYCH_SERVER_HTTP_COMPLETION_REQUEST_H_
#define TRIPTYCH_SERVER_HTTP_COMPLETION_REQUEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/core/chat/reasoning.h"
#include "server/core/error.h"
#include "server/core/requests/request_params.h"
#include "server/http/fields.h"

namespace triptych::server {

struct CompletionRequest {
  std::vector<int32_t> prompt_tokens;  // params may view them; later the generation's prompt
  bool begin_token = false;            // the server prepended the first of them
  GenerateParams params;               // views the body
  // Names of these fields in the request.
  std::string prompt_field = "prompt";
  std::string length_field = "max_tokens";
  std::string logprobs_field = "logprobs";
  bool stream = false;
  bool include_usage = false;  // in a chunk of its own at the end
  ReasoningSplitter::Begin thoughts = ReasoningSplitter::Begin::kContent;  // of the reply
};

// Reads the members that both kinds share: all except prompt, messages and log-probabilities.
void ReadCommon(Fields& fields, CompletionRequest& request);

// Reads how a text becomes tokens: add_special_tokens (vLLM's name), `adds` if absent, and
// parse_special (llama.cpp's name).
TextOptions ReadTextOptions(Fields& fields, bool adds);

// The core's error with its field renamed to the request's name for it.
Error InCompletionTerms(Error error, const CompletionRequest& request);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_COMPLETION_REQUEST_H_
