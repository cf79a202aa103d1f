// Ranges of a request's fields, as stated in the wire contract (proto/triptych/v1/inference.proto).
// The server validates with them, and the client's flags show them.
#ifndef TRIPTYCH_ENGINE_BASE_REQUEST_LIMITS_H_
#define TRIPTYCH_ENGINE_BASE_REQUEST_LIMITS_H_

#include <cstddef>
#include <cstdint>
#include <limits>

#include "engine/base/range.h"

namespace triptych::limits {

inline constexpr int32_t kInt32Max = std::numeric_limits<int32_t>::max();

inline constexpr Range<int32_t> kNewTokens = {1, kInt32Max};
inline constexpr Range<int32_t> kChoices = {1, 16};
inline constexpr size_t kMaxPrompts = 128;           // of one HTTP request
inline constexpr int32_t kMaxRequestChoices = 128;   // of all prompts of one HTTP request
inline constexpr Range<int32_t> kPriority = {0, 3};  // of triptych.v1.Priority
inline constexpr Range<float> kTemperature = {0, 100};
inline constexpr Range<int32_t> kTopK = {0, kInt32Max};
inline constexpr Range<float> kTopP = {0, 1, /*above_low=*/true};
inline constexpr Range<float> kMinP = {0, 1};
inline constexpr Range<float> kRepetitionPenalty = {0, 100, /*above_low=*/true};
inline constexpr Range<float> kPresencePenalty = {-100, 100};
inline constexpr Range<float> kFrequencyPenalty = {-100, 100};
inline constexpr Range<int32_t> kPenaltyWindow = {-1, kInt32Max};
inline constexpr Range<float> kLogitBias = {-1000, 1000};
inline constexpr Range<int32_t> kLogprobs = {0, 20};
inline constexpr size_t kMaxLogitBiases = 1024;
inline constexpr size_t kMaxAllowedTokens = 1024;
inline constexpr size_t kMaxStopTokens = 64;
inline constexpr Range<size_t> kScoreInputs = {1, 64};
inline constexpr size_t kMaxStops = 128;
inline constexpr Range<size_t> kStopBytes = {1, 256};
inline constexpr size_t kMaxStopBytes = 4096;                // of all stop strings together
inline constexpr size_t kMaxGrammarBytes = size_t{1} << 18;  // of a schema, grammar or choices
inline constexpr Range<size_t> kOutputChoices = {1, 4096};
inline constexpr Range<int32_t> kDraftTokens = {0, kInt32Max};
inline constexpr size_t kMaxPredictionBytes = size_t{1} << 18;
inline constexpr size_t kMaxTools = 128;
inline constexpr Range<size_t> kToolNameBytes = {1, 128};
inline constexpr size_t kMaxTextOfPieces = size_t{1} << 19;        // bytes
inline constexpr size_t kMaxDetokenizedBytes = size_t{4} << 20;    // of text
inline constexpr int32_t kMaxPageSize = 1000;                      // larger values count as this
inline constexpr Range<int64_t> kWatchInterval = {50, 3'600'000};  // milliseconds

}  // namespace triptych::limits

#endif  // TRIPTYCH_ENGINE_BASE_REQUEST_LIMITS_H_
