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
// "8.0x": how many times smaller `bytes` are than `mha_bytes`. "-" if there are none.
std::string FormatSaving(int64_t mha_bytes, int64_t bytes);

// `text` with spaces for its newlines and other control characters.
std::string OneLine(std::string text);

// `fraction` of `width` characters, in eighths of a character, never empty for more than nothing.
// REQUIRES: 0 <= fraction <= 1
std::string FormatBar(double fraction, int width);

// "MHA".
std::string Label(v1::AttentionKind kind);
// "waiting".
std::string Label(v1::SequenceState state);
// "length".
std::string Label(v1::FinishReason reason);

// Seconds from the arrival of the request to its first token, as the server measured them.
double TimeToFirstToken(const v1::Usage& usage);
// Tokens per second after the first token; "-" where there are too few tokens to tell.
std::string FormatDecodeRate(const v1::Usage& usage);

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_FORMAT_H_
