#include "engine/grammar/token_grammar.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/grammar/error.h"
#include "engine/grammar/limits.h"

namespace triptych::grammar {
namespace {

// Plain characters (Vocabulary) in UTF-8.
constexpr std::pair<int, int> kPlainAscii[] = {
    {0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0x7F}};
struct Utf8Lead {
  int first, last;            // byte
  int tail;                   // bytes after it
  int tail_first, tail_last;  // the first of them
};
constexpr Utf8Lead kUtf8Leads[] = {{0xC2, 0xDF, 1, 0x80, 0xBF}, {0xE0, 0xE0, 2, 0xA0, 0xBF},
                                   {0xE1, 0xEC, 2, 0x80, 0xBF}, {0xED, 0xED, 2, 0x80, 0x9F},
                                   {0xEE, 0xEF, 2, 0x80, 0xBF}, {0xF0, 0xF0, 3, 0x90, 0xBF},
                                   {0xF1, 0xF3, 3, 0x80, 0xBF}, {0xF4, 0xF4, 3, 0x80, 0x8F}};

// A deterministic automaton over bytes, made as far as a walk needs it.
class States {
 public:
  static constexpr int32_t kDead = -1;
  static constexpr int32_t kAny = std::numeric_limits<int32_t>::max();

  States(const Grammar& grammar, Stacks stacks, const Positions& start)
      : grammar_(grammar), stacks_(std::move(stacks)) {
    Number(start);
  }

  int32_t After(int32_t state, uint8_t byte) {
    const int32_t known = rows_[state][byte];
    if (known != kUnknown) return known;
    if (too_many()) return kDead;  // whatever it is: there will be no mask
    const Positions& positions = *positions_[state];
    const Positions next = grammar::After(grammar_, stacks_, positions, byte, &steps_);
    const int32_t number = next.empty() ? kDead : Number(next);
    // The bytes around it that the same positions read lead to the same state.
    int low = 0, high = 255;
    for (const Position& position : positions) {
      const Node& node = grammar_.nodes[position.node];
      if (node.kind != Node::kByte) continue;
      if (byte < node.low) {
        high = std::min(high, node.low - 1);
      } else if (byte > node.high) {
        low = std::max(low, node.high + 1);
      } else {
        low = std::max<int>(low, node.low);
        high = std::min<int>(high, node.high);
      }
    }
    std::fill(rows_[state].begin() + low, rows_[state].begin() + high + 1, number);
    return number;
  }

  // The number of plain characters that can follow the first state, whichever they are; kAny if
  // there is no bound, or none below `most`. Absent if it depends on the characters.
  std::optional<int32_t> PlainCharacters(int32_t most) {
    int32_t state = 0;
    for (int32_t characters = 0; characters < most; ++characters) {
      const int32_t next = AfterPlain(state);
      if (next == kDead) return TakesNoPlain(state) ? std::optional(characters) : std::nullopt;
      if (next == state) break;
      state = next;
    }
    return kAny;
  }

  bool too_many() const { return rows_.size() > kMaxMaskStates || steps_ > kMaxMaskSteps; }

 private:
  static constexpr int32_t kUnknown = -2;

  // The state after every plain character; kDead if it is not the same for all.
  int32_t AfterPlain(int32_t state) {
    const int32_t to = After(state, ' ');
    if (to == kDead) return kDead;
    for (const auto& [first, last] : kPlainAscii) {
      for (int byte = first; byte <= last; ++byte) {
        if (After(state, static_cast<uint8_t>(byte)) != to) return kDead;
      }
    }
    for (const Utf8Lead& lead : kUtf8Leads) {
      for (int byte = lead.first; byte <= lead.last; ++byte) {
        const int32_t next = After(state, static_cast<uint8_t>(byte));
        if (!LeadsTo(next, lead.tail, lead.tail_first, lead.tail_last, to)) return kDead;
      }
    }
    return to;
  }

  // True if all texts of `tail` bytes, the first of them from `first` to `last`, lead to a state.
  bool LeadsTo(int32_t state, int tail, int first, int last, int32_t to) {
    if (state == kDead) return false;
    int32_t checked = kDead;
    for (int byte = first; byte <= last; ++byte) {
      const int32_t next = After(state, static_cast<uint8_t>(byte));
      if (tail == 1 && next != to) return false;
      if (tail == 1 || next == checked) continue;
      if (!LeadsTo(next, tail - 1, 0x80, 0xBF, to)) return false;
      checked = next;
    }
    return true;
  }

  bool TakesNoPlain(int32_t state) {
    const auto is_dead = [&](int first, int last) {
      for (int byte = first; byte <= last; ++byte) {
        if (After(state, static_cast<uint8_t>(byte)) != kDead) return false;
      }
      return true;
    };
    return is_dead(0xC2, 0xF4) &&
           std::all_of(std::begin(kPlainAscii), std::end(kPlainAscii),
                       [&](const auto& range) { return is_dead(range.first, range.second); });
  }

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
  const Matcher start = Start();
  if (start.positions().empty()) {
    throw GrammarError("begins with too many alternatives; allowed: at most " +
                       std::to_string(kMaxPositions) + ", fixed texts not counted");
  }
  if (MaskOf(start) == nullptr) {
    throw GrammarError(
        "begins with a text that it can read in too many ways; allowed: alternatives and "
        "repetitions that soon differ");
  }
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
  // Inside of a string, the plain tokens are known from their lengths.
  const std::span<const Vocabulary::PlainTokens> plain = vocabulary.plain();
  if (const auto characters = states.PlainCharacters(plain.back().characters)) {
    const auto longer = std::find_if(plain.begin(), plain.end(), [&](const auto& tokens) {
      return tokens.characters > *characters;
    });
    *mask = std::prev(longer)->mask;
    trie = &vocabulary.others();
  }
  if (states.too_many()) return nullptr;
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
