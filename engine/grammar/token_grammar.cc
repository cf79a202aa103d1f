#include "engine/grammar/token_grammar.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/grammar/error.h"
#include "engine/grammar/limits.h"

namespace triptych::grammar {
namespace {

constexpr size_t kManyBytes = 64;

// A deterministic automaton over bytes, made as far as a walk needs it.
class States {
 public:
  static constexpr int32_t kDead = -1;

  States(const Grammar& grammar, Stacks stacks, const Positions& start)
      : grammar_(grammar), stacks_(std::move(stacks)) {
    Number(start);
  }

  int32_t After(int32_t state, uint8_t byte) {
    const int32_t known = rows_[state][byte];
    if (known != kUnknown) return known;
    const Positions next = grammar::After(grammar_, stacks_, *positions_[state], byte, &steps_);
    const int32_t number = next.empty() ? kDead : Number(next);
    rows_[state][byte] = number;
    return number;
  }

  // The bytes that lead from the first state to itself.
  ByteSet Neutral() {
    ByteSet bytes;
    for (int byte = 0; byte < 256; ++byte) bytes[byte] = After(0, static_cast<uint8_t>(byte)) == 0;
    return bytes;
  }

  bool too_many() const { return rows_.size() > kMaxMaskStates || steps_ > kMaxMaskSteps; }

 private:
  static constexpr int32_t kUnknown = -2;

  int32_t Number(const Positions& positions) {
    const auto [found, added] = numbers_.try_emplace(positions, static_cast<int32_t>(rows_.size()));
    if (added) {
      positions_.push_back(&found->first);
      rows_.emplace_back().fill(kUnknown);
    }
    return found->second;
  }

  const Grammar& grammar_;
  Stacks stacks_;
  std::map<Positions, int32_t> numbers_;
  std::vector<const Positions*> positions_;
  std::vector<std::array<int32_t, 256>> rows_;
  size_t steps_ = 0;
};

}  // namespace

TokenGrammar::TokenGrammar(std::shared_ptr<const Grammar> grammar,
                           std::shared_ptr<const Vocabulary> vocabulary)
    : grammar_(std::move(grammar)), vocabulary_(std::move(vocabulary)) {
  if (!Start().positions().empty()) return;
  throw GrammarError("begins with too many alternatives; allowed: at most " +
                     std::to_string(kMaxPositions) + ", fixed texts not counted");
}

int32_t TokenGrammar::CanonicalCount(const Node& node, int32_t count) const {
  // Every repetition reads at least a byte: a token changes the count by at most this.
  const int64_t most = vocabulary_->max_bytes();
  if (count + most < node.min) return 0;
  const bool far_from_max = node.max == Expressions::kUnbounded || count + most < node.max;
  return count >= node.min && far_from_max ? node.min : count;
}

Positions TokenGrammar::Canonical(const Matcher& matcher, Stacks& stacks) const {
  const Stacks& all = matcher.stacks();
  std::unordered_map<int32_t, int32_t> numbers = {{Stacks::kEmpty, Stacks::kEmpty}};
  std::vector<int32_t> above;
  Positions positions;
  for (const auto& [node, stack] : matcher.positions()) {
    int32_t known = stack;
    for (; !numbers.contains(known); known = all[known].below) above.push_back(known);
    int32_t copy = numbers.at(known);
    for (; !above.empty(); above.pop_back()) {
      const Frame& frame = all[above.back()];
      copy =
          stacks.Push(copy, frame.node, CanonicalCount(grammar_->nodes[frame.node], frame.count));
      numbers.emplace(above.back(), copy);
    }
    positions.push_back({node, copy});
  }
  std::sort(positions.begin(), positions.end());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  return positions;
}

std::shared_ptr<const TokenMask> TokenGrammar::MaskOf(const Matcher& matcher) const {
  Stacks stacks;
  const Positions positions = Canonical(matcher, stacks);
  Key key = {static_cast<int32_t>(stacks.size())};
  for (int32_t stack = 1; stack < static_cast<int32_t>(stacks.size()); ++stack) {
    const Frame& frame = stacks[stack];
    key.insert(key.end(), {frame.below, frame.node, frame.count});
  }
  for (const auto& [node, stack] : positions) key.insert(key.end(), {node, stack});
  {
    const MutexLock lock(mutex_);
    const auto found = masks_.find(key);
    if (found != masks_.end()) return found->second;
  }
  std::shared_ptr<const TokenMask> mask = Compute(std::move(stacks), positions);
  const size_t bytes = sizeof(int32_t) * key.size() + (mask ? sizeof(uint64_t) * mask->size() : 0);
  const MutexLock lock(mutex_);
  if (mask_bytes_ + bytes > kMaxCachedMaskBytes) {
    masks_.clear();
    mask_bytes_ = 0;
  }
  if (masks_.emplace(std::move(key), mask).second) mask_bytes_ += bytes;
  return mask;
}

std::shared_ptr<const TokenMask> TokenGrammar::Compute(Stacks stacks,
                                                       const Positions& start) const {
  const Vocabulary& vocabulary = *vocabulary_;
  auto mask = std::make_shared<TokenMask>((vocabulary.size() + 63) / 64);
  const TokenTrie* trie = &vocabulary.tokens();
  States states(*grammar_, std::move(stacks), start);
  // Inside of a string, most tokens change nothing. They are known from their bytes.
  std::shared_ptr<const Vocabulary::Parts> parts;
  const ByteSet neutral = states.Neutral();
  if (neutral.count() >= kManyBytes) {
    parts = vocabulary.Split(neutral);
    *mask = parts->only;
    trie = &parts->others;
  }
  const std::span<const TokenTrie::Node> nodes = trie->nodes();
  std::vector<int32_t> path(vocabulary.max_bytes() + 1);  // [d]: the state after d bytes
  for (size_t n = 0; n < nodes.size();) {
    const TokenTrie::Node& node = nodes[n];
    const int32_t state = states.After(path[node.depth], node.byte);
    if (states.too_many()) return nullptr;
    if (state == States::kDead) {
      n = node.after;
      continue;
    }
    path[node.depth + 1] = state;
    for (const int32_t token : trie->TokensOf(n)) {
      (*mask)[token / 64] |= uint64_t{1} << (token % 64);
    }
    ++n;
  }
  return mask;
}

}  // namespace triptych::grammar
