// Formatting of times, rates and enumerators.
#ifndef TRIPTYCH_CLIENT_FORMAT_H_
#define TRIPTYCH_CLIENT_FORMAT_H_

#include <cstdint>
#include <string>

#include "triptych/v1/inference.pb.h"
#include "triptych/v1/kv_cache.pb.h"
#include "triptych/v1/model.pb.h"

namespace triptych::client {

// "0.25 ms", "12.3 ms", "1.23 s".
std::string FormatSeconds(double seconds);
// "8.0x": mha_bytes / bytes. "-" if `bytes` is not positive.
std::string FormatSaving(int64_t mha_bytes, int64_t bytes);

// Replaces newlines and other control characters by spaces.
std::string OneLine(std::string text);

// A bar of `fraction` of `width` characters, in eighths of a character; empty only for 0. REQUIRES:
// 0 <= fraction <= 1.
std::string FormatBar(double fraction, int width);

// "MHA".
std::string Label(v1::AttentionKind kind);
// "waiting".
std::string Label(v1::SequenceState state);
// "length".
std::string Label(v1::FinishReason reason);

// Seconds from the request's arrival to its first token, as measured by the server.
double TimeToFirstToken(const v1::Usage& usage);
// Tokens per second after the first token; "-" for fewer than two tokens.
std::string FormatDecodeRate(const v1::Usage& usage);

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_FORMAT_H_
