#include "engine/grammar/compile.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "engine/grammar/error.h"
#include "engine/grammar/limits.h"

namespace triptych::grammar {
namespace {

// Copies of one character or literal that a repetition may have; more use a counter.
constexpr int32_t kMaxCopies = 8;

// A class of more ranges is a rule, whose nodes its uses share.
constexpr size_t kManyRanges = 32;

using ByteRange = std::pair<uint8_t, uint8_t>;
using ByteRanges = std::vector<ByteRange>;  // of the bytes of a character, in order

// Calls `emit` with byte ranges whose products together are the UTF-8 of first..last, as in Cox's
// RE2. REQUIRES: no surrogates.
template <typename Emit>
void SplitUtf8(char32_t first, char32_t last, const Emit& emit) {
  constexpr char32_t kLengthEnds[] = {0x7F, 0x7FF, 0xFFFF};
  for (const char32_t end : kLengthEnds) {
    if (first <= end && last > end) {
      SplitUtf8(first, end, emit);
      return SplitUtf8(end + 1, last, emit);
    }
  }
  const size_t length = ToUtf8(first).size();
  for (size_t tail = 1; tail < length; ++tail) {
    const char32_t mask = (char32_t{1} << (6 * tail)) - 1;
    if ((first & ~mask) == (last & ~mask)) continue;
    if ((first & mask) != 0) {
      SplitUtf8(first, first | mask, emit);
      return SplitUtf8((first | mask) + 1, last, emit);
    }
    if ((last & mask) != mask) {
      SplitUtf8(first, (last & ~mask) - 1, emit);
      return SplitUtf8(last & ~mask, last, emit);
    }
  }
  const std::string low = ToUtf8(first), high = ToUtf8(last);
  ByteRanges bytes;
  for (size_t i = 0; i < length; ++i) {
    bytes.emplace_back(static_cast<uint8_t>(low[i]), static_cast<uint8_t>(high[i]));
  }
  emit(bytes);
}

class Compiler {
 public:
  explicit Compiler(const Expressions& expressions) : expressions_(expressions) {
    Add({.kind = Node::kReturn});
  }

  Grammar Run(Expression start) {
    const int32_t first = Build(start, Grammar::kReturn);
    while (!unbuilt_.empty()) {
      const auto [rule, body] = unbuilt_.back();
      unbuilt_.pop_back();
      const int32_t built = Build(body, Grammar::kReturn);
      nodes_[rule].next = built;
    }
    return {std::move(nodes_), first};
  }

 private:
  using Item = Expressions::Item;

  int32_t Add(const Node& node) {
    if (nodes_.size() == kMaxNodes) {
      throw GrammarError("is too large; allowed: at most " + std::to_string(kMaxNodes) + " states");
    }
    nodes_.push_back(node);
    return static_cast<int32_t>(nodes_.size() - 1);
  }

  // The node, shared with equal ones.
  int32_t Shared(const Node& node) {
    const auto found = shared_.find(node);
    if (found != shared_.end()) return found->second;
    const int32_t added = Add(node);
    shared_.emplace(node, added);
    return added;
  }

  int32_t Split(int32_t a, int32_t b) {
    if (a == b || b == Node::kNone) return a;
    if (a == Node::kNone) return b;
    return Shared({.kind = Node::kSplit, .next = a, .other = b});
  }

  // A node that reads nothing, whose `next` is set later.
  int32_t Open() { return Add({.kind = Node::kSplit}); }

  int32_t Bytes(std::string_view bytes, int32_t next) {
    for (size_t i = bytes.size(); i > 0; --i) {
      const auto byte = static_cast<uint8_t>(bytes[i - 1]);
      next = Shared({.kind = Node::kByte, .low = byte, .high = byte, .next = next});
    }
    return next;
  }

  int32_t Characters(const CharacterRanges& ranges, int32_t next) {
    std::vector<ByteRanges> characters;
    for (const auto& [first, last] : ranges) {
      SplitUtf8(first, last, [&](const ByteRanges& bytes) { characters.push_back(bytes); });
    }
    return characters.empty() ? Open() : Utf8Trie(characters, 0, next);  // never set: no text
  }

  // A trie of characters from byte `at` on. REQUIRES: in order; their first `at` ranges are equal,
  // and the next ones are equal or disjoint.
  int32_t Utf8Trie(std::span<const ByteRanges> characters, size_t at, int32_t next) {
    std::vector<Node> arrows;
    while (!characters.empty()) {
      const auto [low, high] = characters.front()[at];
      size_t same = 1;
      while (same < characters.size() && characters[same][at].first == low) ++same;
      const bool is_last = characters.front().size() == at + 1;
      const int32_t to = is_last ? next : Utf8Trie(characters.first(same), at + 1, next);
      if (!arrows.empty() && arrows.back().high + 1 == low && arrows.back().next == to) {
        arrows.back().high = high;
      } else {
        arrows.push_back({.kind = Node::kByte, .low = low, .high = high, .next = to});
      }
      characters = characters.subspan(same);
    }
    int32_t all = Node::kNone;
    for (size_t i = arrows.size(); i > 0; --i) all = Split(Shared(arrows[i - 1]), all);
    return all;
  }

  // A trie of literals from byte `at` on. REQUIRES: sorted; unique; their first `at` bytes are
  // equal.
  int32_t Trie(std::span<const std::string_view> literals, size_t at, int32_t next) {
    if (literals.size() == 1) return Bytes(literals[0].substr(at), next);
    size_t common = at;  // of the first and the last, hence of all
    const std::string_view first = literals.front(), last = literals.back();
    while (common < first.size() && common < last.size() && first[common] == last[common]) ++common;
    int32_t all = Node::kNone;
    if (first.size() == common) {
      all = next;
      literals = literals.subspan(1);
    }
    while (!literals.empty()) {
      size_t same = 1;
      while (same < literals.size() && literals[same][common] == literals[0][common]) ++same;
      all = Split(Trie(literals.first(same), common, next), all);
      literals = literals.subspan(same);
    }
    return Bytes(first.substr(at, common - at), all);
  }

  int32_t Choice(const std::vector<Expression>& alternatives, int32_t next) {
    std::vector<std::string_view> literals;
    int32_t all = Node::kNone;
    for (size_t i = alternatives.size(); i > 0; --i) {
      const Item& item = expressions_[alternatives[i - 1]];
      if (item.kind == Item::kLiteral) {
        literals.emplace_back(item.literal);
      } else {
        all = Split(Build(alternatives[i - 1], next), all);
      }
    }
    if (!literals.empty()) {
      std::sort(literals.begin(), literals.end());
      literals.erase(std::unique(literals.begin(), literals.end()), literals.end());
      all = Split(Trie(literals, 0, next), all);
    }
    return all == Node::kNone ? Open() : all;
  }

  int32_t Repeat(const Item& item, int32_t next) {
    const Expression body = item.parts.front();
    const bool unbounded = item.max == Expressions::kUnbounded;
    if (item.min <= 1 && unbounded) {
      const int32_t loop = Open();
      const int32_t built = Build(body, loop);
      nodes_[loop].next = built;
      nodes_[loop].other = next;
      return item.min == 0 ? loop : built;
    }
    if (item.max == 1) return Split(Build(body, next), next);
    const Item::Kind kind = expressions_[body].kind;
    const bool is_leaf = kind == Item::kCharacters || kind == Item::kLiteral;
    if (is_leaf && !unbounded && item.max <= kMaxCopies) {
      int32_t built = next;
      for (int32_t i = item.max; i > 0; --i) {
        built = Build(body, built);
        if (i > item.min) built = Split(built, next);
      }
      return built;
    }
    return Shared({.kind = Node::kRepeat,
                   .next = next,
                   .other = RuleOf(body),
                   .min = item.min,
                   .max = item.max});
  }

  // The first node of the rule that an expression is.
  int32_t RuleOf(Expression expression) {
    const auto found = rules_.find(expression.id);
    if (found != rules_.end()) return found->second;
    const int32_t rule = Open();
    rules_.emplace(expression.id, rule);
    const Item& item = expressions_[expression];
    unbuilt_.emplace_back(rule, item.kind == Item::kRule ? item.parts.front() : expression);
    return rule;
  }

  // The first node of the expression, followed by `next`. Expressions that several others share
  // are built once for each `next`.
  int32_t Build(Expression expression, int32_t next) {
    const std::pair<int32_t, int32_t> key(expression.id, next);
    const auto found = built_.find(key);
    if (found != built_.end()) return found->second;
    const int32_t first = BuildNew(expression, next);
    built_.emplace(key, first);
    return first;
  }

  int32_t BuildNew(Expression expression, int32_t next) {
    const Item& item = expressions_[expression];
    switch (item.kind) {
      case Item::kLiteral:
        return Bytes(item.literal, next);
      case Item::kCharacters:
        if (item.characters.size() > kManyRanges && next != Grammar::kReturn) {
          return Shared({.kind = Node::kCall, .next = next, .other = RuleOf(expression)});
        }
        return Characters(item.characters, next);
      case Item::kSequence:
        for (size_t i = item.parts.size(); i > 0; --i) next = Build(item.parts[i - 1], next);
        return next;
      case Item::kChoice:
        return Choice(item.parts, next);
      case Item::kRepeat:
        return Repeat(item, next);
      case Item::kRule:
        break;
    }
    const int32_t rule = RuleOf(expression);
    // Nothing is left to do in the caller after a last call: its stack does not grow.
    if (next == Grammar::kReturn) return rule;
    return Shared({.kind = Node::kCall, .next = next, .other = rule});
  }

  const Expressions& expressions_;
  std::vector<Node> nodes_;
  std::map<Node, int32_t> shared_;
  std::map<std::pair<int32_t, int32_t>, int32_t> built_;  // by expression and `next`
  std::map<int32_t, int32_t> rules_;                      // by expression
  std::vector<std::pair<int32_t, Expression>> unbuilt_;
};

// The least solution of "node n holds if `holds(node, solution)`", for a monotone `holds` that
// looks at the node's `next` and `other`.
template <typename Holds>
std::vector<bool> LeastSolution(const std::vector<Node>& nodes, const Holds& holds) {
  std::vector<std::vector<int32_t>> users(nodes.size());
  std::vector<int32_t> open;
  for (size_t n = 0; n < nodes.size(); ++n) {
    for (const int32_t used : {nodes[n].next, nodes[n].other}) {
      if (used != Node::kNone) users[used].push_back(static_cast<int32_t>(n));
    }
    open.push_back(static_cast<int32_t>(n));
  }
  std::vector<bool> solution(nodes.size());
  while (!open.empty()) {
    const int32_t n = open.back();
    open.pop_back();
    if (solution[n] || !holds(nodes[n], solution)) continue;
    solution[n] = true;
    open.insert(open.end(), users[n].begin(), users[n].end());
  }
  return solution;
}

bool In(const std::vector<bool>& solution, int32_t node) {
  return node != Node::kNone && solution[node];
}

// The nodes from which the end of the rule or text is reached: by any bytes, or by none.
std::vector<bool> ReachEnd(const std::vector<Node>& nodes, bool by_bytes) {
  return LeastSolution(nodes, [by_bytes](const Node& node, const std::vector<bool>& known) {
    switch (node.kind) {
      case Node::kReturn:
        return true;
      case Node::kByte:
        return by_bytes && In(known, node.next);
      case Node::kSplit:
        return In(known, node.next) || In(known, node.other);
      case Node::kCall:
        return In(known, node.next) && In(known, node.other);
      case Node::kRepeat:
        return In(known, node.next) && (node.min == 0 || In(known, node.other));
    }
    return false;
  });
}

// Removes alternatives that never reach the end of the text.
void RemoveEndless(Grammar& grammar) {
  const std::vector<bool> ends = ReachEnd(grammar.nodes, /*by_bytes=*/true);
  if (!ends[grammar.start]) throw GrammarError("has no finite text");
  for (Node& node : grammar.nodes) {
    if (node.kind == Node::kRepeat && !In(ends, node.other)) {
      node = {.kind = Node::kSplit, .next = node.next};
    }
    if (node.kind != Node::kSplit) continue;
    if (!In(ends, node.next)) node.next = Node::kNone;
    if (!In(ends, node.other)) node.other = Node::kNone;
  }
}

// Strongly connected components of the nodes that are reached without reading a byte (Tarjan 1972,
// without recursion).
class Components {
 public:
  explicit Components(const std::vector<Node>& nodes, const std::vector<bool>& empty)
      : nodes_(nodes),
        empty_(empty),
        order_(nodes.size()),
        low_(nodes.size()),
        component_(nodes.size(), -1) {
    for (size_t n = 0; n < nodes.size(); ++n) {
      if (order_[n] == 0) Visit(static_cast<int32_t>(n));
    }
  }

  bool AreOne(int32_t a, int32_t b) const { return component_[a] == component_[b]; }

 private:
  struct Visited {
    int32_t node;
    int edge;
  };

  // The successor number `edge` (0 or 1); kNone if there is none.
  int32_t Successor(int32_t n, int edge) const {
    const Node& node = nodes_[n];
    switch (node.kind) {
      case Node::kReturn:
      case Node::kByte:
        return Node::kNone;
      case Node::kSplit:
        return edge == 0 ? node.next : node.other;
      case Node::kCall:
        if (edge == 0) return node.other;
        return empty_[node.other] ? node.next : Node::kNone;
      case Node::kRepeat:
        if (edge == 0) return node.other;
        return node.min == 0 || empty_[node.other] ? node.next : Node::kNone;
    }
    return Node::kNone;
  }

  void Begin(int32_t n) {
    order_[n] = low_[n] = ++visited_;
    open_.push_back(n);
    path_.push_back({n, 0});
  }

  void Visit(int32_t first) {
    Begin(first);
    while (!path_.empty()) {
      auto& [n, edge] = path_.back();
      if (edge < 2) {
        const int32_t to = Successor(n, edge++);
        if (to == Node::kNone) continue;
        if (order_[to] == 0) {
          Begin(to);
        } else if (component_[to] < 0) {
          low_[n] = std::min(low_[n], order_[to]);
        }
        continue;
      }
      const int32_t done = n;
      path_.pop_back();
      if (!path_.empty()) {
        int32_t& low = low_[path_.back().node];
        low = std::min(low, low_[done]);
      }
      if (low_[done] != order_[done]) continue;
      while (true) {
        const int32_t member = open_.back();
        open_.pop_back();
        component_[member] = done;
        if (member == done) break;
      }
    }
  }

  const std::vector<Node>& nodes_;
  const std::vector<bool>& empty_;
  std::vector<int32_t> order_, low_, component_;
  std::vector<int32_t> open_;
  std::vector<Visited> path_;
  int32_t visited_ = 0;
};

}  // namespace

Grammar Compile(const Expressions& expressions, Expression start) {
  Grammar grammar = Compiler(expressions).Run(start);
  RemoveEndless(grammar);
  const std::vector<bool> empty = ReachEnd(grammar.nodes, /*by_bytes=*/false);
  const Components components(grammar.nodes, empty);
  for (size_t n = 0; n < grammar.nodes.size(); ++n) {
    Node& node = grammar.nodes[n];
    if (node.kind != Node::kCall && node.kind != Node::kRepeat) continue;
    if (components.AreOne(static_cast<int32_t>(n), node.other)) {
      throw GrammarError("has a rule that begins with itself; allowed: recursion after some text");
    }
    if (node.kind == Node::kRepeat && empty[node.other]) {
      node.may_be_empty = true;
      node.min = 0;  // empty repetitions count
    }
  }
  return grammar;
}

}  // namespace triptych::grammar
