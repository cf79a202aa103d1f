// Untrusted text in messages.
#ifndef TRIPTYCH_ENGINE_BASE_QUOTED_H_
#define TRIPTYCH_ENGINE_BASE_QUOTED_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace triptych {

// Maximum bytes of a name or value in a message.
inline constexpr size_t kShownBytes = 80;

// `text` as one line that is harmless to a terminal. Invalid UTF-8, control characters and controls
// of the writing direction appear as \xNN. A text of more than `limit` bytes is cut at a character
// and ends with "...".
std::string Printable(std::string_view text, size_t limit = kShownBytes);

// Printable(text, limit) in quotation marks; inner quotation marks and backslashes are escaped.
std::string Quoted(std::string_view text, size_t limit = kShownBytes);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_QUOTED_H_
