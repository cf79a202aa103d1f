#include "engine/text/byte_tokenizer.h"

namespace triptych {

std::vector<int32_t> ByteTokenizer::Encode(std::span<const TextPart> parts) const {
  std::vector<int32_t> tokens;
  for (const TextPart& part : parts) {
    for (const char c : part.text) tokens.push_back(static_cast<unsigned char>(c));
  }
  return tokens;
}

std::string ByteTokenizer::Decode(int32_t token) const {
  if (token < 0 || token >= kBegin) return "";
  return std::string(1, static_cast<char>(token));
}

}  // namespace triptych
