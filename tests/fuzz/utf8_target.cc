// Fuzz target: bytes that become text, in pieces.
#include <optional>
#include <string>

#include "engine/base/quoted.h"
#include "engine/base/utf8.h"
#include "engine/text/byte_tokenizer.h"
#include "engine/text/text_stream.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/targets.h"

namespace triptych {
namespace {

// True if every byte is part of a character, checked by decoding the code points.
bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const auto lead = static_cast<unsigned char>(text[0]);
    const size_t length = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : 4;
    if ((lead >= 0x80 && lead < 0xC0) || lead >= 0xF8 || text.size() < length) return false;
    uint32_t point = length == 1 ? lead : lead & (0x7F >> length);
    for (size_t i = 1; i < length; ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      if (byte >> 6 != 2) return false;
      point = point << 6 | (byte & 0x3F);
    }
    const uint32_t shortest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (point < shortest[length] || point > 0x10FFFF || point >> 11 == 0xD800 >> 11) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace

void FuzzUtf8(std::string_view bytes) {
  FuzzInput input(bytes);
  const size_t most = input.AtMost(16);
  Utf8Stream stream;
  std::string in_pieces;
  std::string all;
  for (bool more = true; more;) {
    const std::string_view piece = most == 0 ? input.TakeAll() : input.Take(input.AtMost(most));
    more = !piece.empty();
    all += piece;
    const std::string text = stream.Push(piece);
    Promise(IsUtf8(text), "a stream gives whole characters");
    in_pieces += text;
  }
  if (IsUtf8(all)) Promise(in_pieces == all, "text comes out as it is, nothing held back");
  in_pieces += stream.Flush();
  Promise(stream.Flush().empty(), "a stream is flushed once");
  Promise(in_pieces == ToValidUtf8(all), "text does not depend on how it comes");
  Promise(IsUtf8(in_pieces), "text is valid");
  Promise(FindInvalidUtf8(all).has_value() != IsUtf8(all), "invalid text is found");
  if (const std::optional<size_t> invalid = FindInvalidUtf8(all)) {
    Promise(IsUtf8(std::string_view(all).substr(0, *invalid)), "what is before is valid");
  }

  if (!all.empty()) PromiseClearLine(Printable(all), 4 * kShownBytes + 3);
  PromiseClearLine(Quoted(all), 4 * kShownBytes + 5);

  std::string decoded;
  for (const int32_t token : ByteTokenizer().Encode(all)) decoded += ByteTokenizer().Decode(token);
  Promise(decoded == all, "the tokens of a text are its bytes");
}

}  // namespace triptych
