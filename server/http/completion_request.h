// What is asked of completions of both kinds, in OpenAI's terms.
#ifndef TRIPTYCH_SERVER_HTTP_COMPLETION_REQUEST_H_
#define TRIPTYCH_SERVER_HTTP_COMPLETION_REQUEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/core/error.h"
#include "server/core/requests/request_params.h"
#include "server/http/fields.h"

namespace triptych::server {

struct CompletionRequest {
  std::vector<int32_t> prompt_tokens;  // which params may view; once it is taken, the prompt's
  bool begin_token = false;            // the first of those was put there by the server
  GenerateParams params;               // views the body
  // What the request calls them.
  std::string prompt_field = "prompt";
  std::string length_field = "max_tokens";
  std::string logprobs_field = "logprobs";
  bool stream = false;
  bool include_usage = false;  // in a chunk of its own
};

// Reads the members that both kinds have, all but what they begin with and log-probabilities.
void ReadCommon(Fields& fields, CompletionRequest& request);

// How a text becomes tokens, by the names that other servers have for it. `adds` is what
// add_special_tokens is if it is absent.
TextOptions ReadTextOptions(Fields& fields, bool adds);

// The core's error about such a request, by the names that the request has for its fields.
Error InCompletionTerms(Error error, const CompletionRequest& request);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_COMPLETION_REQUEST_H_
