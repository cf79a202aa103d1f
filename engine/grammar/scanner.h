// Shared steps of the parsers of grammars that are texts.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_SCANNER_H_
#define TRIPTYCH_ENGINE_GRAMMAR_SCANNER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/grammar/expressions.h"
#include "engine/grammar/limits.h"

namespace triptych::grammar {

// A place in a text.
class Scanner {
 public:
  virtual ~Scanner() = default;

 protected:
  explicit Scanner(std::string_view text) : text_(text) {}

  // Throws GrammarError.
  [[noreturn]] virtual void Fail(const std::string& what) const = 0;

  bool done() const { return at_ == text_.size(); }
  bool Take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  // A decimal number, at most kMaxRepeats + 1; absent without a digit.
  std::optional<int32_t> TakeNumber() {
    const size_t begin = at_;
    int64_t number = 0;
    while (!done() && text_[at_] >= '0' && text_[at_] <= '9') {
      number = std::min<int64_t>(number * 10 + (text_[at_++] - '0'), kMaxRepeats + 1);
    }
    if (at_ == begin) return std::nullopt;
    return static_cast<int32_t>(number);
  }

  // A character by `min` to `max` hexadecimal digits, at most eight.
  char32_t TakeHex(int min, int max) {
    const char32_t value = TakeHexNumber(min, max);
    if (value > kLastCharacter || (value >= 0xD800 && value <= 0xDFFF)) {
      Fail("a number is no character's");
    }
    return value;
  }

  // Likewise, a number.
  char32_t TakeHexNumber(int min, int max) {
    char32_t value = 0;
    int digits = 0;
    for (; digits < max && !done(); ++digits, ++at_) {
      const char c = text_[at_];
      if (c >= '0' && c <= '9') {
        value = value * 16 + (c - '0');
      } else if (c >= 'a' && c <= 'f') {
        value = value * 16 + (c - 'a' + 10);
      } else if (c >= 'A' && c <= 'F') {
        value = value * 16 + (c - 'A' + 10);
      } else {
        break;
      }
    }
    if (digits < min) Fail("a hexadecimal number is incomplete");
    return value;
  }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_SCANNER_H_
