// Masks of a vocabulary: the tokens that continue a text of a grammar.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_TOKEN_GRAMMAR_H_
#define TRIPTYCH_ENGINE_GRAMMAR_TOKEN_GRAMMAR_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/grammar/compile.h"
#include "engine/grammar/matcher.h"
#include "engine/grammar/vocabulary.h"

namespace triptych::grammar {

// A grammar for the tokens of one model. Thread-safe. Keeps masks in up to kMaxCachedMaskBytes.
class TokenGrammar {
 public:
  // Throws GrammarError if the grammar begins with more than kMaxPositions alternatives, or if
  // there is no mask at its beginning. Takes as long as one mask.
  TokenGrammar(std::shared_ptr<const Grammar> grammar,
               std::shared_ptr<const Vocabulary> vocabulary);

  Matcher Start() const { return Matcher(grammar_); }
  // The tokens whose bytes can come next. Null if the grammar is too ambiguous here to compute them
  // within kMaxMaskStates and kMaxMaskSteps. Depends only on the matcher's text.
  std::shared_ptr<const TokenMask> MaskOf(const Matcher& matcher) const TRIPTYCH_EXCLUDES(mutex_);

 private:
  using Key = std::vector<int32_t>;

  // The matcher's positions, with counts of repetitions that no token can tell apart made equal.
  Positions Canonical(const Matcher& matcher, Stacks& stacks) const;
  int32_t CanonicalCount(const Node& node, int32_t count) const;
  std::shared_ptr<const TokenMask> Compute(Stacks stacks, const Positions& start) const;

  const std::shared_ptr<const Grammar> grammar_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  mutable Mutex mutex_;
  mutable std::map<Key, std::shared_ptr<const TokenMask>> masks_ TRIPTYCH_GUARDED_BY(mutex_);
  mutable size_t mask_bytes_ TRIPTYCH_GUARDED_BY(mutex_) = 0;
};

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_TOKEN_GRAMMAR_H_
