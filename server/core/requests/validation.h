// Validation of requests.
//
// All functions are thread-safe, and pure except for drawing a seed. An error names the field, its
// value and what is allowed; the first one
// ends the check. How many there are is checked before what they are, and a text that is surely too
// long is refused before it is tokenized.
#ifndef TRIPTYCH_SERVER_CORE_REQUESTS_VALIDATION_H_
#define TRIPTYCH_SERVER_CORE_REQUESTS_VALIDATION_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/serving/request.h"
#include "server/core/error.h"
#include "server/core/model_info.h"
#include "server/core/requests/request_params.h"

namespace triptych::server {

// A request that the engine may be given. Whether the cache holds it is the engine's to say.
struct ValidRequest {
  serving::Request request;  // without its id, number and client
  std::string prompt_field;  // where the prompt was: "text", "inputs[1].tokens"
  bool begin_token = false;  // the first token of the prompt was put there by the server
  std::string echo;          // what the text of every choice begins with
};

Result<ValidRequest> Validate(const GenerateParams& params, const ModelInfo& model);
// A request for each input.
Result<std::vector<ValidRequest>> Validate(const ScoreParams& params, const ModelInfo& model);

// The tokens of a text, and what they stand for if that was asked for.
struct TokenizedText {
  std::vector<int32_t> tokens;
  // The pieces of all tokens, one after the other, and where in it each one's begins. Pieces are
  // the bytes that tokens stand for where they stand, and need not be whole UTF-8 characters.
  std::string pieces;
  std::vector<int64_t> offsets;
};
Result<TokenizedText> Tokenize(const TokenizeParams& params, const ModelInfo& model);
// The text of tokens, in valid UTF-8.
Result<std::string> Detokenize(std::span<const int32_t> ids, const ModelInfo& model);

// Before a prompt is tokenized: an error if its text must become more tokens than the model's
// context holds, one more where it `generates`. `field` is where the text is.
std::optional<Error> CheckSurelyFits(int64_t text_bytes, bool begin_token, const std::string& field,
                                     const ModelInfo& model, bool generates);

// Nothing if every id is one of the model's.
std::optional<Error> CheckTokenIds(std::span<const int32_t> ids, const ModelInfo& model,
                                   const std::string& field);

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

// How many entries a page holds: the default if 0, and no more than the most.
Result<size_t> ValidatePageSize(int32_t page_size);

// The default if `interval` is absent.
Result<std::chrono::milliseconds> ValidateInterval(const std::optional<IntervalFields>& interval);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_REQUESTS_VALIDATION_H_
