#include "engine/text/byte_tokenizer.h"

namespace triptych {

std::vector<int32_t> ByteTokenizer::Encode(std::string_view text, SpecialTokens /*special*/) const {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::string ByteTokenizer::Decode(int32_t token) const {
  if (token < 0 || token >= kBegin) return "";
  return std::string(1, static_cast<char>(token));
}

}  // namespace triptych
