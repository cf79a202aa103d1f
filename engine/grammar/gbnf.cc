#include "engine/grammar/gbnf.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/quoted.h"
#include "engine/grammar/error.h"
#include "engine/grammar/limits.h"
#include "engine/grammar/scanner.h"

namespace triptych::grammar {
namespace {

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class GbnfParser final : Scanner {
 public:
  GbnfParser(Expressions& expressions, std::string_view text)
      : Scanner(text), expressions_(expressions) {}

  Expression Parse() {
    SkipSpace(/*lines=*/true);
    while (!done()) {
      const std::string name = TakeName();
      if (name.empty()) Fail("expected a rule, name ::= ...");
      SkipSpace(/*lines=*/false);
      if (!Take("::=")) Fail("expected ::= after " + Quoted(name));
      Rule& rule = Find(name);
      if (rule.defined) Fail("the rule " + Quoted(name) + " is defined twice");
      rule.defined = true;
      SkipSpace(/*lines=*/true);
      expressions_.Define(rule.expression, Alternatives(0));
      if (!done() && !Take("\r\n") && !Take("\n")) Fail("expected the end of the line");
      SkipSpace(/*lines=*/true);
    }
    for (const auto& [name, rule] : rules_) {
      if (!rule.defined) {
        throw GrammarError("uses the rule " + Quoted(name) + ", which it does not define");
      }
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) throw GrammarError("has no rule root");
    return root->second.expression;
  }

 private:
  struct Rule {
    Expression expression;
    bool defined = false;
  };

  [[noreturn]] void Fail(const std::string& what) const override {
    const auto line =
        1 + std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(at_), '\n');
    throw GrammarError("is no grammar in GBNF: line " + std::to_string(line) + ": " + what);
  }

  // Skips spaces and comments, and with `lines` ends of lines.
  void SkipSpace(bool lines) {
    while (!done()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string TakeName() {
    const size_t begin = at_;
    while (!done() && IsNameCharacter(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  Rule& Find(const std::string& name) {
    const auto found = rules_.find(name);
    if (found != rules_.end()) return found->second;
    return rules_.emplace(name, Rule{expressions_.Rule(name)}).first->second;
  }

  Expression Alternatives(int depth) {
    if (depth > kMaxNesting) Fail("groups are nested too deeply");
    std::vector<Expression> alternatives = {Sequence(depth)};
    while (Take("|")) {
      SkipSpace(/*lines=*/true);
      alternatives.push_back(Sequence(depth));
    }
    return expressions_.Choice(std::move(alternatives));
  }

  // Ends at |, ) or, outside of groups, at the end of the line.
  Expression Sequence(int depth) {
    std::vector<Expression> parts;
    while (!done()) {
      const char c = text_[at_];
      if (c == '|' || c == ')' || c == '\n' || c == '\r') break;
      const Expression part = Repeated(Part(depth));
      parts.push_back(part);
      SkipSpace(/*lines=*/depth > 0);
    }
    return expressions_.Sequence(std::move(parts));
  }

  Expression Part(int depth) {
    if (Take("\"")) return Literal();
    if (Take("[")) return Class();
    if (Take(".")) return expressions_.Characters(Complement({}));
    if (Take("(")) {
      SkipSpace(/*lines=*/true);
      const Expression group = Alternatives(depth + 1);
      if (!Take(")")) Fail("a group does not end");
      return group;
    }
    const std::string name = TakeName();
    if (name.empty()) Fail("expected a literal, a class, a group or a rule's name");
    return Find(name).expression;
  }

  Expression Repeated(Expression part) {
    while (true) {
      SkipSpace(/*lines=*/false);
      if (Take("*")) {
        part = expressions_.Star(part);
      } else if (Take("+")) {
        part = expressions_.Repeat(part, 1, Expressions::kUnbounded);
      } else if (Take("?")) {
        part = expressions_.Optional(part);
      } else if (Take("{")) {
        const auto min = TakeNumber();
        const bool exact = min && !Take(",");
        if (!min) Take(",");
        const auto max = exact ? min : TakeNumber();
        if ((!min && !max) || !Take("}")) Fail("a repetition is not {m}, {m,}, {,n} or {m,n}");
        if (max && *max < min.value_or(0)) Fail("a repetition's bounds are reversed");
        part = expressions_.Repeat(part, min.value_or(0), max.value_or(Expressions::kUnbounded));
      } else {
        return part;
      }
    }
  }

  // A character of a literal or class, which may be escaped.
  char32_t TakeEscaped() {
    if (done() || text_[at_] == '\n') Fail("a literal or class does not end");
    if (!Take("\\")) return TakeCharacter(text_, at_);
    if (done()) Fail("a \\ escapes nothing");
    const char32_t character = TakeCharacter(text_, at_);
    switch (character) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return TakeHex(2, 2);
      case 'u':
        return TakeHex(4, 4);
      case 'U':
        return TakeHex(8, 8);
      case '"':
      case '\\':
      case '[':
      case ']':
      case '-':
      case '^':
        return character;
      default:
        Fail("\\" + Printable(ToUtf8(character)) + " is no escape");
    }
  }

  Expression Literal() {
    std::string literal;
    while (!Take("\"")) literal += ToUtf8(TakeEscaped());
    return expressions_.Literal(literal);
  }

  Expression Class() {
    const bool negated = Take("^");
    CharacterRanges ranges;
    while (!Take("]")) {
      const char32_t first = TakeEscaped();
      char32_t last = first;
      if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        ++at_;
        last = TakeEscaped();
        if (last < first) Fail("a range of a class is not in order");
      }
      ranges.emplace_back(first, last);
    }
    ranges = Normalized(std::move(ranges));
    return expressions_.Characters(negated ? Complement(ranges) : ranges);
  }

  Expressions& expressions_;
  std::map<std::string, Rule> rules_;
};

}  // namespace

Expression ParseGbnf(Expressions& expressions, std::string_view text) {
  return GbnfParser(expressions, text).Parse();
}

}  // namespace triptych::grammar
