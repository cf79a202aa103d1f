#include "engine/text/bpe_tokenizer.h"

#include <algorithm>
#include <utility>

#include "engine/base/utf8.h"
#include "engine/text/text_stream.h"

namespace triptych {
namespace {

// Of a normalizer's offsets, which are ICU's.
constexpr size_t kMaxTextBytes = size_t{1} << 28;

std::vector<SpecialToken> SpecialOf(const std::vector<AddedToken>& added) {
  std::vector<SpecialToken> special;
  for (const AddedToken& token : added) {
    if (token.special) special.push_back({token.token, token.text});
  }
  return special;
}

// Those that are looked for before or after normalizing; the latter as they are then.
std::vector<AddedToken> Sought(const BpeTokenizerParts& parts, bool normalized) {
  std::vector<AddedToken> sought;
  for (const AddedToken& token : parts.added) {
    if (token.normalized != normalized) continue;
    sought.push_back(token);
    if (!normalized) continue;
    sought.back().text = Normalize(parts.normalizer, token.text);
    const size_t bytes = sought.back().text.size();
    if (bytes == 0 || bytes > kMaxAddedTokenBytes) sought.pop_back();
  }
  return sought;
}

bool KeepsText(const BpeTokenizerParts& parts) {
  const auto strips = [](const AddedToken& token) {
    return token.left_strip || token.right_strip || token.normalized;
  };
  const auto keeps = [](const NormalizerStep& step) {
    const auto* replace = std::get_if<ReplaceStep>(&step);
    return std::holds_alternative<PrependStep>(step) || (replace != nullptr && !replace->shortens);
  };
  const auto removes = [](const PreTokenizerStep& step) {
    const auto* split = std::get_if<SplitStep>(&step);
    return split != nullptr && split->behavior == SplitBehavior::kRemoved;
  };
  return (parts.options.symbols == BpeOptions::kBytes || parts.options.byte_fallback) &&
         std::none_of(parts.added.begin(), parts.added.end(), strips) &&
         std::all_of(parts.normalizer.begin(), parts.normalizer.end(), keeps) &&
         std::none_of(parts.pre_tokenizer.begin(), parts.pre_tokenizer.end(), removes);
}

// Calls token(id) and text(range) for what a text is made of.
template <typename OnToken, typename OnText>
void Walk(const AddedTokenFinder& finder, std::string_view text, SpecialTokens special,
          OnToken on_token, OnText on_text) {
  size_t end = 0;
  for (const AddedTokenFinder::Match& match : finder.FindAll(text, special)) {
    if (end < match.range.begin) on_text(TextRange{end, match.range.begin});
    on_token(match.token);
    end = match.range.end;
  }
  if (end < text.size()) on_text(TextRange{end, text.size()});
}

}  // namespace

BpeTokenizer::BpeTokenizer(BpeTokenizerParts parts)
    : keeps_text_(KeepsText(parts)),
      special_(SpecialOf(parts.added)),
      raw_(Sought(parts, false)),
      normalized_(Sought(parts, true)),
      pre_tokenizer_(std::move(parts.pre_tokenizer)),
      bpe_(std::move(parts.pieces), parts.merges, parts.options),
      decoded_(std::move(parts.decoded)),
      byte_level_(parts.options.symbols == BpeOptions::kBytes),
      drops_leading_space_(parts.drops_leading_space),
      begin_(parts.begin),
      ends_(std::move(parts.ends)) {
  normalizer_ = std::move(parts.normalizer);
}

std::vector<int32_t> BpeTokenizer::Encode(std::string_view bytes, SpecialTokens special) const {
  if (bytes.size() > kMaxTextBytes) throw EncodeError("a text of more than 256 MiB");
  std::string valid;
  std::string_view text = bytes;
  if (FindInvalidUtf8(bytes)) text = valid = ToValidUtf8(bytes);

  std::vector<int32_t> tokens;
  Bpe::Workspace work;
  const auto add = [&](int32_t token) { tokens.push_back(token); };
  Walk(raw_, text, special, add, [&](const TextRange& range) {
    const std::string normal =
        Normalize(normalizer_, text.substr(range.begin, range.end - range.begin));
    Walk(normalized_, normal, special, add, [&](const TextRange& rest) {
      const Pieces pieces(pre_tokenizer_,
                          std::string_view(normal).substr(rest.begin, rest.end - rest.begin),
                          range.begin == 0 && rest.begin == 0);
      for (const std::string_view piece : pieces.all()) bpe_.Encode(piece, work, tokens);
    });
  });
  return tokens;
}

std::string BpeTokenizer::Decode(int32_t token) const {
  if (token < 0 || token >= vocab_size()) return "";
  return decoded_[token];
}

}  // namespace triptych
