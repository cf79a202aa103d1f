// Compiled grammars: bytes, alternatives and calls of rules.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_COMPILE_H_
#define TRIPTYCH_ENGINE_GRAMMAR_COMPILE_H_

#include <cstdint>
#include <vector>

#include "engine/grammar/expressions.h"

namespace triptych::grammar {

// A node of the automaton. Nodes are numbered; a rule is the number of its first node.
struct Node {
  enum Kind : uint8_t {
    kReturn,  // the rule, or the whole text, ends here
    kByte,    // a byte of [low, high], then `next`
    kSplit,   // `next` or `other`; kNone is no alternative
    kCall,    // the rule `other`, then `next`
    kRepeat,  // the rule `other`, between `min` and `max` times, then `next`
  };
  static constexpr int32_t kNone = -1;

  Kind kind = kReturn;
  uint8_t low = 0, high = 0;
  int32_t next = kNone, other = kNone;
  int32_t min = 0, max = 0;   // max: Expressions::kUnbounded if there is no bound
  bool may_be_empty = false;  // kRepeat: the rule has an empty text
  friend auto operator<=>(const Node&, const Node&) = default;
};

// An automaton with a stack that reads UTF-8 byte by byte. Every node can reach the end of the
// text, and no rule calls itself before it has read a byte. Immutable and thread-safe.
struct Grammar {
  static constexpr int32_t kReturn = 0;  // the only node of that kind

  std::vector<Node> nodes;
  int32_t start = 0;
};

// Throws GrammarError if the grammar is too large, recurses on the left, or has no finite text.
// Time and memory are linear in the expressions; bounds of repetitions do not add to them.
Grammar Compile(const Expressions& expressions, Expression start);

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_COMPILE_H_
