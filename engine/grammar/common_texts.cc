#include "engine/grammar/common_texts.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/limits.h"
#include "engine/grammar/matcher.h"

namespace triptych::grammar {
namespace {

constexpr int kBytes = 256;

// Two grammars that read one text. States are numbered as they are found; 0 is the start.
class Product {
 public:
  // Bytes that both read, and the state after one of them.
  struct Arrow {
    uint8_t first, last;
    size_t to;
  };

  Product(const Grammar& a, const Grammar& b) : a_(a), b_(b) {
    Number({StartOf(a, of_a_), StartOf(b, of_b_)});
  }

  size_t size() const { return states_.size(); }

  bool MayEnd(size_t state) const {
    return grammar::MayEnd(states_[state]->first) && grammar::MayEnd(states_[state]->second);
  }

  std::vector<Arrow> ArrowsOf(size_t state, size_t& work) {
    const auto& [in_a, in_b] = *states_[state];
    // Bytes that no position tells apart have one arrow.
    std::vector<bool> begins(kBytes);
    begins[0] = true;
    AddBegins(a_, in_a, begins);
    AddBegins(b_, in_b, begins);
    std::vector<Arrow> arrows;
    size_t steps = 0;
    for (int first = 0, last = 0; first < kBytes; first = last + 1) {
      last = first;
      while (last + 1 < kBytes && !begins[last + 1]) ++last;
      const auto byte = static_cast<uint8_t>(first);
      ++steps;
      Positions after_a = After(a_, of_a_, in_a, byte, &steps);
      if (after_a.empty()) continue;
      Positions after_b = After(b_, of_b_, in_b, byte, &steps);
      if (after_b.empty()) continue;
      arrows.push_back(
          {byte, static_cast<uint8_t>(last), Number({std::move(after_a), std::move(after_b)})});
    }
    work -= std::min(steps, work);
    return arrows;
  }

 private:
  using State = std::pair<Positions, Positions>;

  static void AddBegins(const Grammar& grammar, const Positions& positions,
                        std::vector<bool>& begins) {
    for (const Position& position : positions) {
      const Node& node = grammar.nodes[position.node];
      if (node.kind != Node::kByte) continue;
      begins[node.low] = true;
      if (node.high + 1 < kBytes) begins[node.high + 1] = true;
    }
  }

  size_t Number(State state) {
    const auto [known, added] = numbers_.try_emplace(std::move(state), states_.size());
    if (added) states_.push_back(&known->first);
    return known->second;
  }

  const Grammar& a_;
  const Grammar& b_;
  Stacks of_a_, of_b_;
  std::map<State, size_t> numbers_;
  std::vector<const State*> states_;
};

// One byte of an arrow.
Expression ByteOf(Expressions& expressions, const Product::Arrow& arrow) {
  if (arrow.last < 0x80) return expressions.Characters({{arrow.first, arrow.last}});
  std::vector<Expression> bytes;
  for (int byte = arrow.first; byte <= arrow.last; ++byte) {
    bytes.push_back(expressions.Literal(std::string(1, static_cast<char>(byte))));
  }
  return expressions.Choice(std::move(bytes));
}

}  // namespace

bool HaveNoCommonText(const Grammar& a, const Grammar& b, size_t& work) {
  Product product(a, b);
  for (size_t state = 0; state < product.size(); ++state) {
    if (product.MayEnd(state)) return false;
    product.ArrowsOf(state, work);
    if (work == 0) return false;
  }
  return true;
}

std::optional<Expression> CommonTexts(Expressions& expressions, const Grammar& a, const Grammar& b,
                                      size_t& work) {
  Product product(a, b);
  std::vector<Expression> rules = {expressions.Rule("common")};
  for (size_t state = 0; state < product.size(); ++state) {
    std::vector<Expression> choices;
    if (product.MayEnd(state)) choices.push_back(expressions.Literal(""));
    for (const Product::Arrow& arrow : product.ArrowsOf(state, work)) {
      while (rules.size() <= arrow.to) rules.push_back(expressions.Rule("common"));
      choices.push_back(expressions.Sequence({ByteOf(expressions, arrow), rules[arrow.to]}));
    }
    if (work == 0 || product.size() > kMaxCommonStates) return std::nullopt;
    expressions.Define(rules[state], expressions.Choice(std::move(choices)));
  }
  return rules[0];
}

}  // namespace triptych::grammar
