// Validation of UTF-8, by Unicode's definition of well-formed.
#ifndef TRIPTYCH_ENGINE_BASE_UTF8_H_
#define TRIPTYCH_ENGINE_BASE_UTF8_H_

#include <cstddef>
#include <optional>
#include <string_view>

namespace triptych {

// U+FFFD, the substitute for invalid bytes.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

struct Utf8Piece {
  enum Kind { kCharacter, kIllFormed, kUnfinished } kind;
  size_t length;
};

// The first character of `bytes` (kCharacter), the maximal subpart that cannot become one
// (kIllFormed), or all of `bytes` if more bytes may complete it (kUnfinished). See Unicode 15,
// table 3-7. REQUIRES: `bytes` is not empty.
Utf8Piece FirstUtf8Piece(std::string_view bytes);

// The offset of the first byte that is not part of a well-formed character; nullopt if `text` is
// valid, as protobuf requires of every string.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_UTF8_H_
