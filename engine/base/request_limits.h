// The ranges of a request's fields, as the wire contract (proto/triptych/v1/inference.proto) states
// them: the server validates by them, the client's flags name them. Torch-free.
#ifndef TRIPTYCH_ENGINE_BASE_REQUEST_LIMITS_H_
#define TRIPTYCH_ENGINE_BASE_REQUEST_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace triptych {

// Ranges are from 0 where no least value is named.
inline constexpr float kMaxTemperature = 100;
inline constexpr float kMaxTopP = 1;  // above 0
inline constexpr float kMaxMinP = 1;
inline constexpr float kMaxRepetitionPenalty = 100;  // above 0
// Presence and frequency penalties are from -kMaxPenalty to kMaxPenalty, biases likewise.
inline constexpr float kMaxPenalty = 100;
inline constexpr float kMaxLogitBias = 1000;

inline constexpr int32_t kMinNewTokens = 1;
inline constexpr int32_t kMaxTopLogprobs = 20;
inline constexpr size_t kMaxStops = 16;
inline constexpr size_t kMaxStopBytes = 256;  // of each, at least 1

// Milliseconds between two answers of WatchKvCacheStats.
inline constexpr int64_t kMinWatchInterval = 50;
inline constexpr int64_t kMaxWatchInterval = 3'600'000;

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_REQUEST_LIMITS_H_
