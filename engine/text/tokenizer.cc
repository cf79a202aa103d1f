#include "engine/text/tokenizer.h"

#include <algorithm>

namespace triptych {

std::string Tokenizer::Decode(int32_t token, TextPosition position) const {
  std::string bytes = Decode(token);
  if (position == TextPosition::kStart && drops_leading_space() && bytes.starts_with(' ')) {
    bytes.erase(0, 1);
  }
  return bytes;
}

std::string Tokenizer::Decode(std::span<const int32_t> tokens) const {
  std::string bytes;
  for (const int32_t token : tokens) bytes += Decode(token);
  if (drops_leading_space() && bytes.starts_with(' ')) bytes.erase(0, 1);
  return bytes;
}

std::string_view Tokenizer::SpecialText(int32_t token) const {
  const std::span<const SpecialToken> special = special_tokens();
  const auto found =
      std::find_if(special.begin(), special.end(),
                   [token](const SpecialToken& candidate) { return candidate.token == token; });
  return found == special.end() ? std::string_view() : std::string_view(found->text);
}

void TokenStream::Skip(const Tokenizer& tokenizer, std::span<const int32_t> tokens) {
  const auto has_bytes = [&](int32_t token) { return !tokenizer.Decode(token).empty(); };
  if (std::any_of(tokens.begin(), tokens.end(), has_bytes)) position_ = TextPosition::kInside;
}

std::string TokenStream::Push(const Tokenizer& tokenizer, int32_t token) {
  std::string bytes = tokenizer.Decode(token);
  if (bytes.empty() || position_ == TextPosition::kInside) return bytes;
  position_ = TextPosition::kInside;
  return tokenizer.Decode(token, TextPosition::kStart);
}

}  // namespace triptych
