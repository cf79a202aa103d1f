#include "engine/grammar/expressions.h"

#include <algorithm>

#include "engine/base/utf8.h"
#include "engine/grammar/error.h"
#include "engine/grammar/limits.h"

namespace triptych::grammar {
namespace {

constexpr char32_t kBeforeSurrogates = 0xD7FF, kBehindSurrogates = 0xE000;

// Appends a range without surrogates.
void Append(char32_t first, char32_t last, CharacterRanges& ranges) {
  const auto append = [&](char32_t from, char32_t to) {
    if (from > to) return;
    if (!ranges.empty() && ranges.back().second + 1 >= from) {
      ranges.back().second = std::max(ranges.back().second, to);
    } else {
      ranges.emplace_back(from, to);
    }
  };
  append(first, std::min(last, kBeforeSurrogates));
  append(std::max(first, kBehindSurrogates), std::min(last, kLastCharacter));
}

}  // namespace

CharacterRanges Normalized(CharacterRanges ranges) {
  std::sort(ranges.begin(), ranges.end());
  CharacterRanges normalized;
  for (const auto& [first, last] : ranges) Append(first, last, normalized);
  return normalized;
}

CharacterRanges Complement(const CharacterRanges& ranges) {
  CharacterRanges others;
  char32_t next = 0;
  for (const auto& [first, last] : ranges) {
    if (first > next) Append(next, first - 1, others);
    next = last + 1;
  }
  Append(next, kLastCharacter, others);
  return others;
}

CharacterRanges Intersection(const CharacterRanges& a, const CharacterRanges& b) {
  CharacterRanges common;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const char32_t first = std::max(a[i].first, b[j].first);
    const char32_t last = std::min(a[i].second, b[j].second);
    if (first <= last) Append(first, last, common);
    if (a[i].second < b[j].second) {
      ++i;
    } else {
      ++j;
    }
  }
  return common;
}

std::string ToUtf8(char32_t character) {
  const auto byte = [](char32_t bits) { return static_cast<char>(bits); };
  const auto tail = [&](int shift) { return byte(0x80 | ((character >> shift) & 0x3F)); };
  if (character < 0x80) return {byte(character)};
  if (character < 0x800) return {byte(0xC0 | (character >> 6)), tail(0)};
  if (character < 0x10000) return {byte(0xE0 | (character >> 12)), tail(6), tail(0)};
  return {byte(0xF0 | (character >> 18)), tail(12), tail(6), tail(0)};
}

char32_t TakeCharacter(std::string_view text, size_t& at) {
  const Utf8Piece piece = FirstUtf8Piece(text.substr(at));
  if (piece.kind != Utf8Piece::kCharacter) {
    throw GrammarError("is not valid UTF-8 at byte " + std::to_string(at));
  }
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  char32_t character = byte(0);
  if (piece.length > 1) character &= 0x7F >> piece.length;
  for (size_t i = 1; i < piece.length; ++i) character = character << 6 | (byte(i) & 0x3F);
  at += piece.length;
  return character;
}

Expression Expressions::Add(Item item) {
  if (items_.size() == kMaxExpressions) {
    throw GrammarError("has more than " + std::to_string(kMaxExpressions) + " parts");
  }
  if (item.kind != Item::kRule) {
    for (const Expression part : item.parts) {
      const Item& one = items_[part.id];
      if (one.kind != Item::kRule) item.depth = std::max(item.depth, one.depth + 1);
    }
  }
  if (item.depth > kMaxNesting) {
    throw GrammarError("is nested too deeply; allowed: at most " + std::to_string(kMaxNesting) +
                       " levels");
  }
  items_.push_back(std::move(item));
  return {static_cast<int32_t>(items_.size() - 1)};
}

Expression Expressions::Literal(std::string_view bytes) {
  literal_bytes_ += bytes.size();
  if (literal_bytes_ > kMaxLiteralBytes) {
    throw GrammarError("has more than " + std::to_string(kMaxLiteralBytes) +
                       " bytes of fixed text");
  }
  return Add({.kind = Item::kLiteral, .literal = std::string(bytes)});
}

Expression Expressions::Characters(CharacterRanges ranges) {
  return Add({.kind = Item::kCharacters, .characters = std::move(ranges)});
}

void Expressions::CountRanges(size_t ranges) {
  ranges_ += ranges;
  if (ranges_ > kMaxRanges) {
    throw GrammarError("has more than " + std::to_string(kMaxRanges) + " ranges of characters");
  }
}

Expression Expressions::Sequence(std::vector<Expression> parts) {
  if (parts.size() == 1) return parts.front();
  return Add({.kind = Item::kSequence, .parts = std::move(parts)});
}

Expression Expressions::Choice(std::vector<Expression> alternatives) {
  if (alternatives.size() == 1) return alternatives.front();
  return Add({.kind = Item::kChoice, .parts = std::move(alternatives)});
}

Expression Expressions::Repeat(Expression body, int32_t min, int32_t max) {
  const int32_t largest = std::max(min, max);
  if (largest > kMaxRepeats) {
    throw GrammarError("repeats up to " + std::to_string(largest) + " times; allowed: at most " +
                       std::to_string(kMaxRepeats));
  }
  if (max != kUnbounded && min > max) return Choice({});
  if (max == 0) return Literal("");
  if (min == 1 && max == 1) return body;
  return Add({.kind = Item::kRepeat, .parts = {body}, .min = min, .max = max});
}

Expression Expressions::Rule(std::string_view name) {
  return Add({.kind = Item::kRule, .literal = std::string(name)});
}

void Expressions::Define(Expression rule, Expression body) { items_[rule.id].parts = {body}; }

}  // namespace triptych::grammar
