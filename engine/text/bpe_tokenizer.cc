#include "engine/text/bpe_tokenizer.h"

#include <algorithm>
#include <utility>

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

// Calls on_token(id) and on_text(range) for what a text is made of.
template <typename OnToken, typename OnText>
void Walk(const AddedTokenFinder& finder, std::string_view text, std::span<const TextRange> parsed,
          OnToken on_token, OnText on_text) {
  size_t end = 0;
  for (const AddedTokenFinder::Match& match : finder.FindAll(text, parsed)) {
    if (end < match.range.begin) on_text(TextRange{end, match.range.begin});
    on_token(match.token);
    end = match.range.end;
  }
  if (end < text.size()) on_text(TextRange{end, text.size()});
}

struct Stretch {
  TextRange range;
  bool parsed;
};

// A range of a text cut where parsed ranges begin and end.
std::vector<Stretch> Cut(const TextRange& range, std::span<const TextRange> parsed) {
  std::vector<Stretch> stretches;
  size_t at = range.begin;
  const auto add = [&](size_t end, bool inside) {
    end = std::min(end, range.end);
    if (at < end) stretches.push_back({{at, end}, inside});
    at = std::max(at, end);
  };
  for (const TextRange& inside : parsed) {
    add(inside.begin, false);
    add(inside.end, true);
  }
  add(range.end, false);
  return stretches;
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

std::vector<int32_t> BpeTokenizer::Encode(std::span<const TextPart> parts) const {
  const JoinedText joined = Join(parts);
  const std::string_view text = joined.text;
  const std::span<const TextRange> parsed = joined.parsed;
  if (text.size() > kMaxTextBytes) throw EncodeError("a text of more than 256 MiB");

  std::vector<int32_t> tokens;
  Bpe::Workspace work;
  const auto add = [&](int32_t token) { tokens.push_back(token); };
  const auto encode = [&](const TextRange& range, bool is_parsed) {
    const std::string normal =
        Normalize(normalizer_, text.substr(range.begin, range.end - range.begin));
    const TextRange whole[] = {{0, normal.size()}};
    Walk(normalized_, normal, std::span(whole, is_parsed ? 1 : 0), add, [&](const TextRange& rest) {
      const Pieces pieces(pre_tokenizer_,
                          std::string_view(normal).substr(rest.begin, rest.end - rest.begin),
                          range.begin == 0 && rest.begin == 0);
      for (const std::string_view piece : pieces.all()) bpe_.Encode(piece, work, tokens);
    });
  };
  Walk(raw_, text, parsed, add, [&](const TextRange& range) {
    if (!normalized_.finds_special()) {
      encode(range, false);
      return;
    }
    for (const Stretch& stretch : Cut(range, parsed)) encode(stretch.range, stretch.parsed);
  });
  return tokens;
}

std::string BpeTokenizer::Decode(int32_t token) const {
  if (token < 0 || token >= vocab_size()) return "";
  return decoded_[token];
}

}  // namespace triptych
