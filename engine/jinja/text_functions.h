// Functions of Python's str on texts.
#ifndef TRIPTYCH_ENGINE_JINJA_TEXT_FUNCTIONS_H_
#define TRIPTYCH_ENGINE_JINJA_TEXT_FUNCTIONS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/jinja/text.h"
#include "engine/jinja/value.h"

namespace triptych::jinja {

// Offsets in bytes.
using ByteRange = std::pair<size_t, size_t>;

// Bytes of the white space, as Python's str.isspace() has it, at the begin and the end of a text.
size_t LeadingSpaces(std::string_view text);
size_t TrailingSpaces(std::string_view text);
bool IsSpace(char32_t code_point);

// The part that strip() keeps: without white space, or without code points of `characters`.
struct Sides {
  bool left = true;
  bool right = true;
};
ByteRange Strip(Heap& heap, std::string_view text, Sides sides,
                const std::optional<std::string_view>& characters);
ByteRange Strip(std::string_view text);

// The offset of the first `part` in the text at or after `from`, or of the last one; npos if there
// is none. Linear in the sizes.
size_t FindText(Heap& heap, std::string_view text, std::string_view part, size_t from = 0);
size_t FindLastText(Heap& heap, std::string_view text, std::string_view part);

// The parts of split() and rsplit(). Without a separator, white space separates. `most` splits at
// most; any number if negative. REQUIRES: the separator is not empty.
std::vector<ByteRange> Split(std::string_view text,
                             const std::optional<std::string_view>& separator, int64_t most,
                             bool from_right, Heap& heap);
std::vector<ByteRange> SplitLines(std::string_view text, bool keep_ends, Heap& heap);

// `from` replaced by `to`, at most `most` times; any number if negative.
Value Replace(Heap& heap, const Text& text, std::string_view from, const Text& to, int64_t most);

// Case mappings. Each code point keeps its source.
enum class LetterCase { kUpper, kLower, kTitle, kCapitalized };

// The name of its method and filter.
constexpr std::string_view Name(LetterCase letter_case) {
  switch (letter_case) {
    case LetterCase::kUpper:
      return "upper";
    case LetterCase::kLower:
      return "lower";
    case LetterCase::kTitle:
      return "title";
    case LetterCase::kCapitalized:
      return "capitalize";
  }
  return "";
}

Value MapCase(Heap& heap, const Text& text, LetterCase letter_case);

// Code points [begin, end) of a text, as a range of bytes.
ByteRange CodePointRange(std::string_view text, size_t begin, size_t end);

}  // namespace triptych::jinja

#endif  // TRIPTYCH_ENGINE_JINJA_TEXT_FUNCTIONS_H_
