#include "engine/text/bpe_tokenizer.h"

#include <algorithm>
#include <utility>

namespace triptych {
namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 28;

std::vector<SpecialToken> SpecialOf(const std::vector<AddedToken>& added) {
  std::vector<SpecialToken> special;
  for (const AddedToken& token : added) {
    if (token.special) special.push_back({token.token, token.text});
  }
  return special;
}

// The added tokens that match before normalization.
std::vector<AddedToken> SoughtRaw(const std::vector<AddedToken>& added) {
  std::vector<AddedToken> sought;
  for (const AddedToken& token : added) {
    if (!token.normalized) sought.push_back(token);
  }
  return sought;
}

// The added tokens that match after normalization, with their normalized texts.
std::vector<AddedToken> SoughtNormalized(const std::vector<AddedToken>& added,
                                         const std::vector<NormalizerStep>& normalizer) {
  size_t all_bytes = 0;
  for (const AddedToken& token : added) all_bytes += token.text.size();
  EncodeBudget budget(all_bytes);
  std::vector<AddedToken> sought;
  size_t sought_bytes = 0;
  for (const AddedToken& token : added) {
    if (!token.normalized) continue;
    std::string normal = Normalize(normalizer, token.text, budget);
    if (normal.empty() || normal.size() > kMaxAddedTokenBytes) continue;
    sought_bytes += normal.size();
    if (sought_bytes > kMaxAddedBytes) {
      throw EncodeError("they become more than " + std::to_string(kMaxAddedBytes) + " bytes");
    }
    sought.push_back(token);
    sought.back().text = std::move(normal);
  }
  return sought;
}

// True if a part of a text, of any length, may belong to no token.
bool CutsAway(const std::vector<AddedToken>& added,
              const std::vector<PreTokenizerStep>& pre_tokenizer) {
  const auto strips = [](const AddedToken& token) { return token.left_strip || token.right_strip; };
  const auto removes = [](const PreTokenizerStep& step) {
    const auto* split = std::get_if<SplitStep>(&step);
    return split != nullptr && split->behavior == SplitBehavior::kRemoved;
  };
  return std::any_of(added.begin(), added.end(), strips) ||
         std::any_of(pre_tokenizer.begin(), pre_tokenizer.end(), removes);
}

// Calls on_token(id) for each added token in a text, and on_text(range) for the text between them.
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

// Splits a range where parsed ranges begin and end. Removes from `parsed` the ranges that end
// before it.
std::vector<Stretch> Cut(const TextRange& range, std::span<const TextRange>& parsed) {
  while (!parsed.empty() && parsed.front().end <= range.begin) parsed = parsed.subspan(1);
  std::vector<Stretch> stretches;
  size_t at = range.begin;
  const auto add = [&](size_t end, bool inside) {
    end = std::min(end, range.end);
    if (at < end) stretches.push_back({{at, end}, inside});
    at = std::max(at, end);
  };
  for (const TextRange& inside : parsed) {
    if (inside.begin >= range.end) break;
    add(inside.begin, false);
    add(inside.end, true);
  }
  add(range.end, false);
  return stretches;
}

}  // namespace

BpeTokenizer::BpeTokenizer(BpeTokenizerParts parts)
    : special_(SpecialOf(parts.added)),
      raw_(SoughtRaw(parts.added)),
      normalizer_(std::move(parts.normalizer)),
      normalized_(SoughtNormalized(parts.added, normalizer_)),
      pre_tokenizer_(std::move(parts.pre_tokenizer)),
      bpe_(std::move(parts.pieces), parts.merges, parts.options),
      words_(std::move(parts.words)),
      decoded_(std::move(parts.decoded)),
      byte_level_(parts.options.symbols == BpeOptions::kBytes),
      drops_leading_space_(parts.drops_leading_space),
      begin_(parts.begin),
      ends_(std::move(parts.ends)),
      max_token_bytes_(CutsAway(parts.added, pre_tokenizer_) ? kAnyBytes : FindMaxTokenBytes()) {}

int64_t BpeTokenizer::FindMaxTokenBytes() const {
  const std::optional<size_t> of_words =
      words_ != nullptr ? words_->MaxTokenBytes() : bpe_.MaxTokenBytes();
  const std::optional<int64_t> shrinkage = MostShrinkage(normalizer_);
  if (!of_words || !shrinkage) return kAnyBytes;
  const auto normal = static_cast<int64_t>(std::max(*of_words, normalized_.longest()));
  return std::min(kAnyBytes, std::max(static_cast<int64_t>(raw_.longest()), normal * *shrinkage));
}

std::vector<int32_t> BpeTokenizer::Encode(std::span<const TextPart> parts) const {
  const JoinedText joined = Join(parts);
  const std::string_view text = joined.text;
  if (text.size() > kMaxTextBytes) {
    throw EncodeError("a text of " + std::to_string(text.size()) + " bytes; allowed: at most " +
                      std::to_string(kMaxTextBytes));
  }

  std::vector<int32_t> tokens;
  EncodeBudget budget(text.size());
  Bpe::Workspace work;
  std::span<const TextRange> ahead = joined.parsed;  // without the ranges already passed
  const auto add = [&](int32_t token) { tokens.push_back(token); };
  const auto encode = [&](const TextRange& range, bool is_parsed) {
    const std::string normal =
        Normalize(normalizer_, text.substr(range.begin, range.end - range.begin), budget);
    const TextRange whole[] = {{0, normal.size()}};
    Walk(normalized_, normal, std::span(whole, is_parsed ? 1 : 0), add, [&](const TextRange& rest) {
      const Pieces pieces(pre_tokenizer_,
                          std::string_view(normal).substr(rest.begin, rest.end - rest.begin),
                          range.begin == 0 && rest.begin == 0, budget);
      for (const std::string_view piece : pieces.all()) {
        if (words_ != nullptr) {
          words_->Encode(piece, tokens);
        } else {
          bpe_.Encode(piece, work, tokens);
        }
      }
    });
  };
  Walk(raw_, text, joined.parsed, add, [&](const TextRange& range) {
    if (!normalized_.finds_special()) {
      encode(range, false);
      return;
    }
    for (const Stretch& stretch : Cut(range, ahead)) encode(stretch.range, stretch.parsed);
  });
  return tokens;
}

std::string BpeTokenizer::Decode(int32_t token) const {
  if (token < 0 || token >= vocab_size()) return "";
  return decoded_[token];
}

}  // namespace triptych
