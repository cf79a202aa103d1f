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

#include "server/core/error.h"
#include "server/core/model_info.h"
#include "server/core/requests/request_params.h"
#include "server/core/requests/valid_request.h"

namespace triptych::server {

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

// How many entries a page holds: the default if 0, and no more than the most.
Result<size_t> ValidatePageSize(int32_t page_size);

// The default if `interval` is absent.
Result<std::chrono::milliseconds> ValidateInterval(const std::optional<IntervalFields>& interval);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_REQUESTS_VALIDATION_H_
