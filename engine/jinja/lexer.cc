#include "engine/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "engine/jinja/error.h"
#include "engine/jinja/text.h"
#include "engine/jinja/text_functions.h"

namespace triptych::jinja {
namespace {

// Bounds the memory of the syntax tree, some 500 bytes for each.
constexpr size_t kMaxTokens = size_t{1} << 17;

constexpr size_t kMaxNameBytes = 256;

constexpr std::array<std::string_view, 26> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  "=",  ">", "<", ".", ":", "|", ",", ";"};

bool IsNameByte(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }

// The source with line feeds alone, and without the last one.
std::string Normalize(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      text += '\n';
    } else {
      text += source[i];
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(Normalize(source)), source_(text_) {}

  std::vector<Token> Run() {
    while (at_ < source_.size()) {
      const size_t tag = FindTag();
      if (tag == source_.npos) {
        Data(source_.size(), source_.size(), ' ', ' ');
        break;
      }
      const char kind = source_[tag + 1];
      const size_t raw_end = kind == '%' ? RawTagEnd(tag, "raw", /*ends=*/false) : source_.npos;
      size_t end = tag + 2;
      char sign = ' ';
      if (end < source_.size() && (source_[end] == '-' || source_[end] == '+')) {
        sign = source_[end++];
      }
      Data(tag, raw_end == source_.npos ? end : raw_end, sign, kind);
      if (raw_end != source_.npos) {
        Raw();
      } else if (kind == '#') {
        Comment();
      } else {
        Tag(kind == '%');
      }
    }
    Add(Token::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void Fail(const std::string& what) const { throw SyntaxError(line_, what); }

  void Add(Token::Kind kind, std::string text) {
    if (tokens_.size() == kMaxTokens) {
      Fail("the template has more than " + std::to_string(kMaxTokens) + " tokens");
    }
    tokens_.push_back({kind, line_, std::move(text)});
  }

  void MoveTo(size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    at_ = end;
  }

  size_t FindTag() const {
    for (size_t i = source_.find('{', at_); i < source_.size() - 1; i = source_.find('{', i + 1)) {
      const char next = source_[i + 1];
      if (next == '{' || next == '%' || next == '#') return i;
    }
    return source_.npos;
  }

  size_t SkipSpaces(size_t i) const {
    return i + LeadingSpaces(source_.substr(std::min(i, source_.size())));
  }

  // The end of the tag {% NAME %} at `tag`; npos if it is another tag. The tag that `ends` a raw
  // block removes the line feed after it.
  size_t RawTagEnd(size_t tag, std::string_view name, bool ends) const {
    size_t i = tag + 2;
    if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) ++i;
    i = SkipSpaces(i);
    if (!source_.substr(i).starts_with(name)) return source_.npos;
    i = SkipSpaces(i + name.size());
    const std::string_view rest = source_.substr(i);
    if (rest.starts_with("-%}")) return SkipSpaces(i + 3);
    if (ends && rest.starts_with("+%}")) return i + 3;
    if (!rest.starts_with("%}")) return source_.npos;
    return i + 2 + (ends && rest.substr(2).starts_with('\n') ? 1 : 0);
  }

  // Adds the text up to `tag`, stripped for a tag of this kind and sign, and moves to `next`.
  void Data(size_t tag, size_t next, char sign, char kind) {
    std::string_view text = source_.substr(at_, tag - at_);
    if (sign == '-') {
      text.remove_suffix(TrailingSpaces(text));
    } else if (sign != '+' && kind != '{' && tag < source_.size()) {  // lstrip_blocks
      const size_t line_begin = text.rfind('\n') + 1;                 // 0 without a line feed
      const bool begins_line = line_begin > 0 || at_ == 0 || source_[at_ - 1] == '\n';
      const std::string_view indentation = text.substr(line_begin);
      if (begins_line && LeadingSpaces(indentation) == indentation.size()) {
        text.remove_suffix(indentation.size());
      }
    }
    if (!text.empty()) Add(Token::kData, std::string(text));
    MoveTo(next);
  }

  void Comment() {
    const size_t end = source_.find("#}", at_);
    if (end == source_.npos) Fail("a comment has no end; expected: #}");
    const char before = end > at_ ? source_[end - 1] : ' ';
    size_t next = end + 2;
    if (before == '-') {
      next = SkipSpaces(next);
    } else if (before != '+' && source_.substr(next).starts_with('\n')) {
      ++next;
    }
    MoveTo(next);
  }

  void Raw() {
    for (size_t i = source_.find("{%", at_); i != source_.npos; i = source_.find("{%", i + 2)) {
      const size_t end = RawTagEnd(i, "endraw", /*ends=*/true);
      if (end == source_.npos) continue;
      const char sign = source_[i + 2];
      return Data(i, end, sign == '-' || sign == '+' ? sign : ' ', '%');
    }
    Fail("a raw block has no end; expected: {% endraw %}");
  }

  // The end of the tag that ends here; absent if none does.
  std::optional<size_t> TagEnd(bool is_block) const {
    const std::string_view rest = source_.substr(at_);
    const std::string_view end = is_block ? "%}" : "}}";
    if (rest.starts_with('-') && rest.substr(1).starts_with(end)) return SkipSpaces(at_ + 3);
    if (is_block && rest.starts_with("+%}")) return at_ + 3;
    if (!rest.starts_with(end)) return std::nullopt;
    return at_ + 2 + (is_block && rest.substr(2).starts_with('\n') ? 1 : 0);  // trim_blocks
  }

  void Tag(bool is_block) {
    Add(is_block ? Token::kBlockBegin : Token::kVariableBegin, "");
    std::string open;  // brackets
    while (true) {
      MoveTo(SkipSpaces(at_));
      if (at_ == source_.size()) Fail("a tag has no end");
      if (open.empty()) {
        if (const auto end = TagEnd(is_block)) {
          Add(is_block ? Token::kBlockEnd : Token::kVariableEnd, "");
          return MoveTo(*end);
        }
      }
      const char c = source_[at_];
      if (c == '\'' || c == '"') {
        String(c);
      } else if (IsAsciiDigit(c)) {
        Number();
      } else if (IsNameByte(c)) {
        size_t end = at_;
        while (end < source_.size() && IsNameByte(source_[end])) ++end;
        if (end - at_ > kMaxNameBytes) {
          Fail("a name has more than " + std::to_string(kMaxNameBytes) + " bytes");
        }
        Add(Token::kName, std::string(source_.substr(at_, end - at_)));
        MoveTo(end);
      } else {
        Operator(open);
      }
    }
  }

  void Operator(std::string& open) {
    const auto* const found =
        std::find_if(kOperators.begin(), kOperators.end(),
                     [&](std::string_view one) { return source_.substr(at_).starts_with(one); });
    if (found == kOperators.end()) Fail(std::string("unexpected character '") + source_[at_] + "'");
    const char c = found->front();
    if (c == '(' || c == '[' || c == '{') {
      open += c == '(' ? ')' : static_cast<char>(c + 2);
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) Fail(std::string("unexpected '") + c + "'");
      open.pop_back();
    }
    Add(Token::kOperator, std::string(*found));
    MoveTo(at_ + found->size());
  }

  void Number() {
    size_t end = at_;
    const auto digits = [&](auto is_digit) {
      while (end < source_.size() &&
             (is_digit(source_[end]) ||
              (source_[end] == '_' && end + 1 < source_.size() && is_digit(source_[end + 1])))) {
        ++end;
      }
    };
    const auto at = [&](size_t i) { return i < source_.size() ? source_[i] : '\0'; };
    if (source_[at_] == '0' &&
        std::string_view("xXoObB").find(at(at_ + 1)) != std::string_view::npos) {
      end += 2;
      digits([](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; });
      return Number(Token::kInteger, end);
    }
    Token::Kind kind = Token::kInteger;
    digits(IsAsciiDigit);
    if (at(end) == '.' && IsAsciiDigit(at(end + 1))) {
      kind = Token::kFloat;
      ++end;
      digits(IsAsciiDigit);
    }
    if (at(end) == 'e' || at(end) == 'E') {
      const size_t sign = at(end + 1) == '+' || at(end + 1) == '-' ? 1 : 0;
      if (IsAsciiDigit(at(end + 1 + sign))) {
        kind = Token::kFloat;
        end += 1 + sign;
        digits(IsAsciiDigit);
      }
    }
    Number(kind, end);
  }

  void Number(Token::Kind kind, size_t end) {
    std::string text(source_.substr(at_, end - at_));
    std::erase(text, '_');
    Add(kind, std::move(text));
    MoveTo(end);
  }

  void String(char quote) {
    std::string value;
    size_t i = at_ + 1;
    while (true) {
      if (i >= source_.size()) Fail("a string has no end");
      if (source_[i] == quote) break;
      if (source_[i] != '\\') {
        value += source_[i++];
        continue;
      }
      i = Escape(i + 1, value);
    }
    Add(Token::kString, std::move(value));
    MoveTo(i + 1);
  }

  // Adds the character of the escape sequence whose backslash is before `i`; returns its end.
  size_t Escape(size_t i, std::string& value) const {
    if (i >= source_.size()) Fail("a string has no end");
    constexpr std::string_view kLetters = "abfnrtv\\'\"";
    constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    const char c = source_[i];
    if (c == '\n') return i + 1;
    if (const size_t letter = kLetters.find(c); letter != kLetters.npos) {
      value += kMeanings[letter];
      return i + 1;
    }
    if (c >= '0' && c <= '7') return Digits(i, 3, 8, /*all=*/false, value);
    if (c == 'x') return Digits(i + 1, 2, 16, /*all=*/true, value);
    if (c == 'u') return Digits(i + 1, 4, 16, /*all=*/true, value);
    if (c == 'U') return Digits(i + 1, 8, 16, /*all=*/true, value);
    if (c == 'N') Fail("the escape sequence \\N is not supported");
    value += '\\';  // as Python keeps an unknown one
    value += c;
    return i + 1;
  }

  size_t Digits(size_t i, size_t most, char32_t base, bool all, std::string& value) const {
    char32_t code_point = 0;
    size_t count = 0;
    for (; count < most && i < source_.size(); ++count, ++i) {
      const auto c = static_cast<unsigned char>(source_[i]);
      if (std::isxdigit(c) == 0) break;
      const auto digit =
          static_cast<char32_t>(std::isdigit(c) != 0 ? c - '0' : std::tolower(c) - 'a' + 10);
      if (digit >= base) break;
      code_point = code_point * base + digit;
    }
    if (all && count < most) Fail("an escape sequence has too few digits");
    if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000)) {
      Fail("an escape sequence names no character");
    }
    AppendUtf8(code_point, value);
    return i;
  }

  const std::string text_;
  const std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Lex(std::string_view source) { return Lexer(source).Run(); }

}  // namespace triptych::jinja
