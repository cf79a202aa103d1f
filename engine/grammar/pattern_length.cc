#include "engine/grammar/pattern_length.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/ceil_div.h"

namespace triptych::grammar {
namespace {

constexpr int64_t kEndless = int64_t{1} << 40;  // more than any bound of a length

// A product of lengths or counts, up to kEndless.
int64_t Times(int64_t length, int64_t count) {
  return length == 0 || count == 0 ? 0 : count > kEndless / length ? kEndless : length * count;
}

class LengthBounder {
 public:
  LengthBounder(Expressions& expressions, const JsonText& json)
      : expressions_(expressions), json_(json) {}

  std::optional<Expression> Bound(Expression content, int64_t min, int64_t max) {
    const Lengths own = LengthsOf(content);
    if (own.min >= min && own.max <= max) return content;
    if (own.max < min || own.min > max) return expressions_.Choice({});
    const Expressions::Item item = expressions_[content];
    switch (item.kind) {
      case Expressions::Item::kChoice:
        return Choice(item, min, max);
      case Expressions::Item::kRepeat:
        return Repeat(item, min, max);
      case Expressions::Item::kSequence:
        return Sequence(item, min, max);
      default:
        return std::nullopt;
    }
  }

 private:
  // In characters. Up to kEndless.
  struct Lengths {
    int64_t min = 0, max = 0;
    bool is_fixed() const { return min == max; }
  };

  Lengths LengthsOf(Expression expression) {
    const auto known = lengths_.find(expression.id);
    if (known != lengths_.end()) return known->second;
    const Lengths lengths = NewLengthsOf(expression);
    lengths_.emplace(expression.id, lengths);
    return lengths;
  }

  Lengths NewLengthsOf(Expression expression) {
    if (json_.IsCharacter(expression)) return {1, 1};
    const Expressions::Item& item = expressions_[expression];
    Lengths all;
    if (item.kind == Expressions::Item::kRule) {  // a state of an automaton
      all = {0, kEndless};
    } else if (item.kind == Expressions::Item::kRepeat) {
      const Lengths body = LengthsOf(item.parts.front());
      const bool unbounded = item.max == Expressions::kUnbounded;
      all = {Times(body.min, item.min), Times(body.max, unbounded ? kEndless : item.max)};
    } else if (item.kind == Expressions::Item::kSequence) {
      for (const Expression part : item.parts) {
        const Lengths one = LengthsOf(part);
        all = {all.min + one.min, all.max + one.max};
      }
    } else if (item.kind == Expressions::Item::kChoice && !item.parts.empty()) {
      all = {kEndless, 0};
      for (const Expression part : item.parts) {
        const Lengths one = LengthsOf(part);
        all = {std::min(all.min, one.min), std::max(all.max, one.max)};
      }
    }
    return {std::min(all.min, kEndless), std::min(all.max, kEndless)};
  }

  std::optional<Expression> Choice(const Expressions::Item& item, int64_t min, int64_t max) {
    std::vector<Expression> choices;
    for (const Expression part : item.parts) {
      const auto bounded = Bound(part, min, max);
      if (!bounded) return std::nullopt;
      choices.push_back(*bounded);
    }
    return expressions_.Choice(std::move(choices));
  }

  std::optional<Expression> Repeat(const Expressions::Item& item, int64_t min, int64_t max) {
    const Lengths body = LengthsOf(item.parts.front());
    if (!body.is_fixed()) return std::nullopt;
    const auto least = static_cast<int32_t>(std::max<int64_t>(item.min, CeilDiv(min, body.min)));
    int32_t most = item.max;
    if (max < kEndless) {
      const int64_t fit = max / body.min;
      most = static_cast<int32_t>(most == Expressions::kUnbounded ? fit
                                                                  : std::min<int64_t>(most, fit));
    }
    return expressions_.Repeat(item.parts.front(), least, most);
  }

  std::optional<Expression> Sequence(Expressions::Item item, int64_t min, int64_t max) {
    int64_t fixed = 0;
    Expression* varying = nullptr;
    for (Expression& part : item.parts) {
      const Lengths one = LengthsOf(part);
      if (one.is_fixed()) {
        fixed += one.min;
      } else if (varying == nullptr) {
        varying = &part;
      } else {
        return std::nullopt;
      }
    }
    const auto bounded = Bound(*varying, min - fixed, max == kEndless ? max : max - fixed);
    if (!bounded) return std::nullopt;
    *varying = *bounded;
    return expressions_.Sequence(std::move(item.parts));
  }

  Expressions& expressions_;
  const JsonText& json_;
  std::unordered_map<int32_t, Lengths> lengths_;  // by expression
};

}  // namespace

std::optional<Expression> WithLength(Expressions& expressions, const JsonText& json,
                                     Expression content, int32_t min, int32_t max) {
  return LengthBounder(expressions, json)
      .Bound(content, min, max == Expressions::kUnbounded ? kEndless : max);
}

}  // namespace triptych::grammar
