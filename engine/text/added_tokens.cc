#include "engine/text/added_tokens.h"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <utility>

#include "engine/base/utf8.h"
#include "engine/text/text_stream.h"

namespace triptych {
namespace {

// \w of Unicode's technical standard 18, annex C.
bool IsOfWord(UChar32 c) {
  return u_isUAlphabetic(c) || (U_GET_GC_MASK(c) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) ||
         u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL);
}

bool IsWhiteSpace(UChar32 c) { return u_isUWhiteSpace(c); }

// The least offset, not before `begin`, from which all characters before `at` satisfy `is`.
size_t SpanBefore(std::string_view text, size_t begin, size_t at, bool (*is)(UChar32)) {
  auto offset = static_cast<int32_t>(at);
  while (offset > static_cast<int32_t>(begin)) {
    int32_t previous = offset;
    UChar32 c = 0;
    U8_PREV(text.data(), static_cast<int32_t>(begin), previous, c);
    if (!is(c)) break;
    offset = previous;
  }
  return offset;
}

size_t SpanAfter(std::string_view text, size_t at, bool (*is)(UChar32)) {
  auto offset = static_cast<int32_t>(at);
  const auto end = static_cast<int32_t>(text.size());
  while (offset < end) {
    int32_t next = offset;
    UChar32 c = 0;
    U8_NEXT(text.data(), next, end, c);
    if (!is(c)) break;
    offset = next;
  }
  return offset;
}

// True if the character before or after the range is part of a word.
bool TouchesWord(std::string_view text, const TextRange& range) {
  const auto size = static_cast<int32_t>(text.size());
  UChar32 c = 0;
  if (range.begin > 0) {
    auto at = static_cast<int32_t>(range.begin);
    U8_PREV(text.data(), 0, at, c);
    if (IsOfWord(c)) return true;
  }
  if (range.end == text.size()) return false;
  auto at = static_cast<int32_t>(range.end);
  U8_NEXT(text.data(), at, size, c);
  return IsOfWord(c);
}

uint64_t ChildKey(uint32_t node, char byte) {
  return uint64_t{node} << 8 | static_cast<unsigned char>(byte);
}

}  // namespace

JoinedText Join(std::span<const TextPart> parts) {
  JoinedText joined;
  for (const TextPart& part : parts) {
    const size_t begin = joined.text.size();
    joined.text += FindInvalidUtf8(part.text) ? ToValidUtf8(part.text) : part.text;
    if (part.special == SpecialTokens::kParsed)
      joined.parsed.push_back({begin, joined.text.size()});
  }
  return joined;
}

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), ends_(1) {
  for (const AddedToken& token : tokens_) {
    uint32_t node = 0;
    for (const char c : token.text) {
      const auto [it, added] =
          children_.emplace(ChildKey(node, c), static_cast<uint32_t>(ends_.size()));
      if (added) ends_.push_back(nullptr);
      node = it->second;
    }
    ends_[node] = &token;
  }
}

bool AddedTokenFinder::finds_special() const {
  return std::any_of(tokens_.begin(), tokens_.end(),
                     [](const AddedToken& token) { return token.special; });
}

size_t AddedTokenFinder::longest() const {
  size_t longest = 0;
  for (const AddedToken& token : tokens_) longest = std::max(longest, token.text.size());
  return longest;
}

const AddedToken* AddedTokenFinder::Longest(std::string_view text, size_t parsed) const {
  const AddedToken* longest = nullptr;
  uint32_t node = 0;
  for (const char c : text) {
    const auto it = children_.find(ChildKey(node, c));
    if (it == children_.end()) break;
    node = it->second;
    const AddedToken* const token = ends_[node];
    if (token != nullptr && (!token->special || token->text.size() <= parsed)) longest = token;
  }
  return longest;
}

std::vector<AddedTokenFinder::Match> AddedTokenFinder::FindAll(
    std::string_view text, std::span<const TextRange> parsed) const {
  std::vector<Match> matches;
  if (tokens_.empty()) return matches;
  size_t end = 0;  // of the last match, including the white space that it takes
  for (size_t at = 0; at < text.size();) {
    while (!parsed.empty() && parsed.front().end <= at) parsed = parsed.subspan(1);
    const bool inside = !parsed.empty() && parsed.front().begin <= at;
    const AddedToken* const token = Longest(text.substr(at), inside ? parsed.front().end - at : 0);
    if (token == nullptr) {
      ++at;
      continue;
    }
    TextRange range{at, at + token->text.size()};
    at = range.end;
    if (token->single_word && TouchesWord(text, range)) continue;
    if (token->left_strip) range.begin = SpanBefore(text, end, range.begin, IsWhiteSpace);
    if (token->right_strip) range.end = SpanAfter(text, range.end, IsWhiteSpace);
    matches.push_back({range, token->token});
    at = end = range.end;
  }
  return matches;
}

}  // namespace triptych
