// UTF-8, as Unicode defines what is well formed. Torch-free.
#ifndef TRIPTYCH_ENGINE_BASE_UTF8_H_
#define TRIPTYCH_ENGINE_BASE_UTF8_H_

#include <cstddef>
#include <optional>
#include <string_view>

namespace triptych {

// What stands for bytes that are no text: U+FFFD.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

struct Utf8Piece {
  enum Kind { kCharacter, kIllFormed, kUnfinished } kind;
  size_t length;
};

// The first character of `bytes`, or the maximal subpart that cannot become one, or all of `bytes`
// if more of them may finish it (Unicode 15, table 3-7). REQUIRES: not empty.
Utf8Piece FirstUtf8Piece(std::string_view bytes);

// The offset of the first byte that is not part of a well-formed character; none if `text` is
// valid, which protobuf requires of every string.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_UTF8_H_
