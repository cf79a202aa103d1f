#include "engine/base/utf8.h"

namespace triptych {

Utf8Piece FirstUtf8Piece(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {Utf8Piece::kCharacter, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Piece::kIllFormed, 1};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and values above U+10FFFF.
  unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Utf8Piece::kUnfinished, i};
    if (byte(i) < low || byte(i) > high) return {Utf8Piece::kIllFormed, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Piece::kCharacter, length};
}

std::optional<size_t> FindInvalidUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Piece piece = FirstUtf8Piece(text.substr(at));
    if (piece.kind != Utf8Piece::kCharacter) return at;
    at += piece.length;
  }
  return std::nullopt;
}

}  // namespace triptych
