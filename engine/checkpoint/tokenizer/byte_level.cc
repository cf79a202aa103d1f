#include "engine/checkpoint/tokenizer/byte_level.h"

#include <cstddef>
#include <unordered_map>

#include "engine/base/utf8.h"

namespace triptych::checkpoint {
namespace {

// The byte of each character. Printed characters of Latin-1 are their own bytes; all other bytes,
// in order, are the characters from U+0100 on.
std::unordered_map<std::string, char> MakeByteLevelAlphabet() {
  std::unordered_map<std::string, char> bytes;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printed = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const int code_point = printed ? byte : next++;
    std::string character;
    if (code_point < 0x80) {
      character = static_cast<char>(code_point);
    } else {
      character = {static_cast<char>(0xC0 | code_point >> 6),
                   static_cast<char>(0x80 | (code_point & 0x3F))};
    }
    bytes.emplace(character, static_cast<char>(byte));
  }
  return bytes;
}

}  // namespace

std::optional<std::string> ByteLevelBytes(std::string_view piece) {
  static const std::unordered_map<std::string, char> alphabet = MakeByteLevelAlphabet();
  std::string bytes;
  while (!piece.empty()) {
    const size_t length = FirstUtf8Piece(piece).length;
    const auto it = alphabet.find(std::string(piece.substr(0, length)));
    if (it == alphabet.end()) return std::nullopt;
    bytes += it->second;
    piece.remove_prefix(length);
  }
  return bytes;
}

}  // namespace triptych::checkpoint
