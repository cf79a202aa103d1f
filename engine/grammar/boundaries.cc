#include "engine/grammar/boundaries.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/grammar/error.h"
#include "engine/grammar/limits.h"

namespace triptych::grammar {
namespace {

// Kinds of what surrounds a place, and sets of them.
enum Around : uint8_t { kEdge = 1, kNewline = 2, kWordCharacter = 4, kOther = 8, kAnyKind = 15 };
constexpr std::array kCharacterKinds = {kNewline, kWordCharacter, kOther};

// The kinds that may follow a boundary after a character of a kind.
uint8_t MayFollow(Boundary boundary, Around before) {
  const auto if_before = [&](int kinds) { return (before & kinds) != 0 ? kAnyKind : 0; };
  switch (boundary) {
    case Boundary::kTextBegin:
      return if_before(kEdge);
    case Boundary::kTextEnd:
      return kEdge;
    case Boundary::kLineBegin:
      return if_before(kEdge | kNewline);
    case Boundary::kLineEnd:
      return kEdge | kNewline;
    case Boundary::kWord:
      return before == kWordCharacter ? kAnyKind & ~kWordCharacter : kWordCharacter;
    case Boundary::kNoWord:
      return before == kWordCharacter ? kWordCharacter : kAnyKind & ~kWordCharacter;
  }
  return 0;
}

class Resolver {
 public:
  Resolver(Expressions& expressions, const BoundedExpression& bounded,
           const std::function<Expression(const CharacterRanges&)>& one)
      : expressions_(expressions), bounded_(bounded), one_(one) {
    // Kinds that no boundary of the expression tells apart are one.
    CharacterRanges newlines, word;
    for (const auto& [id, boundary] : bounded.boundaries) {
      if (boundary == Boundary::kLineBegin || boundary == Boundary::kLineEnd) {
        newlines = bounded.newlines;
      } else if (boundary == Boundary::kWord || boundary == Boundary::kNoWord) {
        word = bounded.word;
      }
    }
    CharacterRanges known = newlines;
    known.insert(known.end(), word.begin(), word.end());
    ranges_ = {{kNewline, std::move(newlines)},
               {kWordCharacter, std::move(word)},
               {kOther, Complement(Normalized(std::move(known)))}};
  }

  Expression Run() {
    const int32_t end = Add({.kind = State::kEnd});
    const int32_t start = Build(bounded_.whole, end);
    FindWatching();
    const Expression whole = RuleOf(start, kEdge, kAnyKind);
    while (!undefined_.empty()) {
      const auto [key, rule] = undefined_.back();
      undefined_.pop_back();
      expressions_.Define(rule, BodyOf(key));
    }
    return whole;
  }

 private:
  using Item = Expressions::Item;
  // A state, the kind of the character before, and the kinds that may follow.
  using Key = std::tuple<int32_t, Around, uint8_t>;

  struct State {
    enum { kEnd, kCharacter, kBoundary, kSplit } kind;
    int32_t expression = 0;               // kCharacter, kBoundary
    int32_t next = kNone, other = kNone;  // other: of kSplit
  };
  static constexpr int32_t kNone = -1;

  int32_t Add(const State& state) {
    states_.push_back(state);
    return static_cast<int32_t>(states_.size() - 1);
  }

  int32_t Split(int32_t a, int32_t b) { return Add({State::kSplit, 0, a, b}); }

  // The first state of the expression, followed by `next`.
  int32_t Build(Expression expression, int32_t next) {
    if (++built_ > kMaxNodes) {
      throw GrammarError("is too large with \\b, or ^ or $ inside; allowed: at most " +
                         std::to_string(kMaxNodes) + " states, with repetitions copied");
    }
    if (bounded_.characters.contains(expression.id)) {
      return Add({State::kCharacter, expression.id, next});
    }
    if (bounded_.boundaries.contains(expression.id)) {
      return Add({State::kBoundary, expression.id, next});
    }
    const Item& item = expressions_[expression];
    if (item.kind == Item::kSequence) {
      for (size_t i = item.parts.size(); i > 0; --i) next = Build(item.parts[i - 1], next);
    } else if (item.kind == Item::kChoice) {
      int32_t all = kNone;
      for (const Expression part : item.parts) all = Split(Build(part, next), all);
      return item.parts.empty() ? Split(kNone, kNone) : all;
    } else if (item.kind == Item::kRepeat) {
      return Repeat(item, next);
    }
    return next;
  }

  int32_t Repeat(const Item& item, int32_t next) {
    const Expression body = item.parts.front();
    int32_t first = next;
    if (item.max == Expressions::kUnbounded) {
      first = Split(kNone, next);
      const int32_t again = Build(body, first);
      states_[first].next = again;
    }
    for (int32_t i = item.min; i < item.max; ++i) first = Split(Build(body, first), next);
    for (int32_t i = 0; i < item.min; ++i) first = Build(body, first);
    return first;
  }

  // Finds the states from which a boundary comes before the next character.
  void FindWatching() {
    std::vector<std::vector<int32_t>> before(states_.size());
    std::vector<int32_t> open;
    for (size_t n = 0; n < states_.size(); ++n) {
      const State& state = states_[n];
      const auto number = static_cast<int32_t>(n);
      if (state.kind == State::kBoundary) open.push_back(number);
      if (state.kind != State::kSplit) continue;
      for (const int32_t to : {state.next, state.other}) {
        if (to != kNone) before[to].push_back(number);
      }
    }
    watching_.resize(states_.size());
    while (!open.empty()) {
      const int32_t state = open.back();
      open.pop_back();
      if (watching_[state]) continue;
      watching_[state] = true;
      open.insert(open.end(), before[state].begin(), before[state].end());
    }
  }

  Expression RuleOf(int32_t state, Around before, uint8_t may_follow) {
    const Key key(state, before, may_follow);
    const auto found = rules_.find(key);
    if (found != rules_.end()) return found->second;
    const Expression rule = expressions_.Rule("state");
    rules_.emplace(key, rule);
    undefined_.emplace_back(key, rule);
    return rule;
  }

  Expression BodyOf(const Key& key) {
    const auto [number, before, may_follow] = key;
    const State& state = states_[number];
    if (state.kind == State::kCharacter) return CharacterOf(state, may_follow);
    std::vector<Expression> choices;
    if (state.kind == State::kEnd) {
      if ((may_follow & kEdge) != 0) choices.push_back(expressions_.Literal(""));
    } else if (state.kind == State::kBoundary) {
      const uint8_t left = may_follow & MayFollow(bounded_.boundaries.at(state.expression), before);
      if (left != 0) choices.push_back(RuleOf(state.next, before, left));
    } else {
      for (const int32_t to : {state.next, state.other}) {
        if (to != kNone) choices.push_back(RuleOf(to, before, may_follow));
      }
    }
    return expressions_.Choice(std::move(choices));
  }

  Expression CharacterOf(const State& state, uint8_t may_follow) {
    if (!watching_[state.next] && may_follow == kAnyKind) {
      return expressions_.Sequence(
          {Expression{state.expression}, RuleOf(state.next, kOther, kAnyKind)});
    }
    std::vector<Expression> choices;
    for (const Around kind : kCharacterKinds) {
      if ((may_follow & kind) == 0) continue;
      const std::optional<Expression> some = PieceOf(state.expression, kind);
      if (!some) continue;
      const Around known = watching_[state.next] ? kind : kOther;
      choices.push_back(expressions_.Sequence({*some, RuleOf(state.next, known, kAnyKind)}));
    }
    return expressions_.Choice(std::move(choices));
  }

  // The characters of an expression that are of a kind; absent if there are none.
  std::optional<Expression> PieceOf(int32_t expression, Around kind) {
    const auto [known, added] = pieces_.try_emplace({expression, kind});
    if (!added) return known->second;
    const CharacterRanges& all = bounded_.characters.at(expression);
    const CharacterRanges some = Intersection(all, ranges_.at(kind));
    if (!some.empty()) known->second = some == all ? Expression{expression} : one_(some);
    return known->second;
  }

  Expressions& expressions_;
  const BoundedExpression& bounded_;
  const std::function<Expression(const CharacterRanges&)>& one_;
  std::map<Around, CharacterRanges> ranges_;
  std::map<std::pair<int32_t, Around>, std::optional<Expression>> pieces_;
  std::vector<State> states_;
  size_t built_ = 0;
  std::vector<bool> watching_;  // by state
  std::map<Key, Expression> rules_;
  std::vector<std::pair<Key, Expression>> undefined_;
};

}  // namespace

Expression WithBoundaries(Expressions& expressions, const BoundedExpression& bounded,
                          const std::function<Expression(const CharacterRanges&)>& one) {
  return Resolver(expressions, bounded, one).Run();
}

}  // namespace triptych::grammar
