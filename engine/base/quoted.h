// Text of files in messages. Torch-free.
#ifndef TRIPTYCH_ENGINE_BASE_QUOTED_H_
#define TRIPTYCH_ENGINE_BASE_QUOTED_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace triptych {

// How much of a name or a value is shown.
inline constexpr size_t kShownBytes = 80;

// The beginning of `text`, at most `limit` bytes of it and then "...", as one line that a terminal
// shows and does not obey: bytes that are no UTF-8, control characters and those that turn the
// direction of writing come as \xNN.
std::string Printable(std::string_view text, size_t limit = kShownBytes);

// Printable(text, limit) between quotation marks, with those inside and backslashes escaped.
std::string Quoted(std::string_view text, size_t limit = kShownBytes);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_QUOTED_H_
