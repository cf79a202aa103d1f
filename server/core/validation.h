// The one place where what a client asks for is checked. All functions are pure but for drawing a
// seed, and thread-safe. An error names the field, its value and what is allowed; the first one
// ends the check.
#ifndef TRIPTYCH_SERVER_CORE_VALIDATION_H_
#define TRIPTYCH_SERVER_CORE_VALIDATION_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/serving/request.h"
#include "server/core/error.h"
#include "server/core/request_params.h"
#include "server/core/served_model.h"

namespace triptych {

// A request that the engine may be given. Whether it fits is the engine's to say.
struct ValidRequest {
  Request request;           // without its id
  std::string prompt_field;  // where the prompt was: "text" or "tokens"
};

Result<ValidRequest> Validate(const GenerateParams& params, const ServedModel& model);
Result<ValidRequest> Validate(const ScoreParams& params, const ServedModel& model);

// Nothing if every id is one of the model's.
std::optional<Error> CheckTokenIds(std::span<const int32_t> ids, const ServedModel& model,
                                   const std::string& field);

// How much a request asks for, by the names of its fields.
struct RequestSize {
  std::string prompt_field;
  int64_t prompt_tokens = 0;  // the begin token included
  int64_t max_new_tokens = 0;
};

// Why the engine did not take a request that was valid by itself. REQUIRES: not kAccepted.
Error Rejection(SubmitStatus status, const RequestSize& size, const ServedModel& model);

// Which live sequences a page holds: at most `size` of those that arrived after `after`.
struct PageRange {
  uint64_t after = 0;
  size_t size = 0;
};
Result<PageRange> ValidatePage(const ListSequencesParams& params);

// The default if `interval` is absent.
Result<std::chrono::milliseconds> ValidateInterval(const std::optional<IntervalFields>& interval);

}  // namespace triptych

#endif  // TRIPTYCH_SERVER_CORE_VALIDATION_H_
