// Lengths of prompts and outputs that a model's context and cache hold. Thread-safe.
#ifndef TRIPTYCH_SERVER_CORE_REQUESTS_CONTEXT_LENGTH_H_
#define TRIPTYCH_SERVER_CORE_REQUESTS_CONTEXT_LENGTH_H_

#include <cstdint>
#include <optional>
#include <string>

#include "engine/serving/request.h"
#include "server/core/error.h"
#include "server/core/model_info.h"
#include "server/core/requests/valid_request.h"

namespace triptych::server {

// The most positions of a prompt and its output: those that the context and the pool hold. The last
// token takes none in the pool.
int64_t MostPositions(const ModelInfo& model);

// The most tokens of a prompt that the context holds, one less where it `generates`.
int64_t MostPromptTokens(const ModelInfo& model, bool generates);

// The error of a prompt in `field` with more tokens than that. `length`: how many, in words.
Error PromptTooLong(const std::string& field, const std::string& length, bool begin_token,
                    const ModelInfo& model, bool generates);

// Before a prompt is tokenized: an error if its text must become more tokens than the model's
// context holds, one more where it `generates`. `field` is where the text is.
std::optional<Error> CheckSurelyFits(int64_t text_bytes, bool begin_token, const std::string& field,
                                     const ModelInfo& model, bool generates);

// How much a request asks for, by the names of its fields.
struct RequestSize {
  std::string prompt_field;
  bool begin_token = false;
  int64_t prompt_tokens = 0;  // the begin token included
  int64_t max_new_tokens = 0;

  static RequestSize Of(const ValidRequest& valid);
};

// Why the engine did not take a request that was valid by itself. REQUIRES: not kAccepted.
Error Rejection(serving::SubmitStatus status, const RequestSize& size, const ModelInfo& model);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_REQUESTS_CONTEXT_LENGTH_H_
