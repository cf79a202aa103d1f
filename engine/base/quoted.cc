#include "engine/base/quoted.h"

#include "engine/base/utf8.h"

namespace triptych {
namespace {

// True if a well-formed character does more than advance the cursor by its width: C0, DEL, C1, line
// and paragraph separators, and direction marks, embeddings and isolates.
bool IsControl(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7F;
  if (character.size() == 2) return byte(0) == 0xC2 && byte(1) < 0xA0;
  if (character.size() != 3 || byte(0) != 0xE2) return false;
  return (byte(1) == 0x80 && (byte(2) == 0x8E || byte(2) == 0x8F)) ||  // U+200E, U+200F
         (byte(1) == 0x80 && byte(2) >= 0xA8 && byte(2) <= 0xAE) ||    // U+2028 to U+202E
         (byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9);      // U+2066 to U+2069
}

std::string Escaped(std::string_view text, size_t limit, bool quoted) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string shown;
  for (size_t at = 0; at < text.size();) {
    const Utf8Piece piece = FirstUtf8Piece(text.substr(at));
    if (at + piece.length > limit) return shown += "...";
    const std::string_view bytes = text.substr(at, piece.length);
    at += piece.length;
    if (piece.kind != Utf8Piece::kCharacter || IsControl(bytes)) {
      for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        shown += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
      }
      continue;
    }
    if (quoted && (bytes == "\"" || bytes == "\\")) shown += '\\';
    shown += bytes;
  }
  return shown;
}

}  // namespace

std::string Printable(std::string_view text, size_t limit) { return Escaped(text, limit, false); }

std::string Quoted(std::string_view text, size_t limit) {
  return '"' + Escaped(text, limit, true) + '"';
}

}  // namespace triptych
