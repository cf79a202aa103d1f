// A validated request.
#ifndef TRIPTYCH_SERVER_CORE_REQUESTS_VALID_REQUEST_H_
#define TRIPTYCH_SERVER_CORE_REQUESTS_VALID_REQUEST_H_

#include <string>

#include "engine/serving/request.h"

namespace triptych::server {

// A request that the engine may be given. Whether the cache holds it is the engine's to say.
struct ValidRequest {
  serving::Request request;  // without its id, number and client
  std::string prompt_field;  // where the prompt was: "text", "inputs[1].tokens"
  bool begin_token = false;  // the first token of the prompt was put there by the server
  std::string echo;          // what the text of every choice begins with
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_REQUESTS_VALID_REQUEST_H_
