// Conditions of regular expressions on what surrounds a place of the text.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_BOUNDARIES_H_
#define TRIPTYCH_ENGINE_GRAMMAR_BOUNDARIES_H_

#include <cstdint>
#include <functional>
#include <map>

#include "engine/grammar/expressions.h"

namespace triptych::grammar {

enum class Boundary {
  kTextBegin,
  kTextEnd,
  kLineBegin,
  kLineEnd,
  kWord,    // between a character of a word and another one or an end of the text
  kNoWord,  // everywhere else
};

// A regular expression with conditions. The parts of `whole` are sequences, choices, repetitions,
// empty literals and these:
struct BoundedExpression {
  Expression whole;
  std::map<int32_t, CharacterRanges> characters;  // by expression: one character of the ranges
  std::map<int32_t, Boundary> boundaries;         // by expression: a rule without a body
  CharacterRanges newlines, word;                 // disjoint: what lines and words are made of
};

// The texts of `bounded` that meet its conditions, as an automaton that knows the kind of the
// character before. `one` makes the expression of one character. Repetitions are copied. Throws
// GrammarError beyond kMaxNodes states.
Expression WithBoundaries(Expressions& expressions, const BoundedExpression& bounded,
                          const std::function<Expression(const CharacterRanges&)>& one);

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_BOUNDARIES_H_
