#include "engine/grammar/matcher.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "engine/grammar/limits.h"

namespace triptych::grammar {
namespace {

constexpr size_t kFewFrames = 4096;

// Follows nodes that read nothing.
class Closure {
 public:
  Closure(const Grammar& grammar, Stacks& stacks) : grammar_(grammar), stacks_(stacks) {}

  void Add(int32_t node, int32_t stack) {
    open_.push_back({node, stack, 0});
    while (!open_.empty() && !too_many_) {
      const Open next = open_.back();
      open_.pop_back();
      Follow(next);
    }
  }

  size_t followed() const { return followed_; }

  Positions Take() && {
    if (too_many_) return {};
    std::sort(found_.begin(), found_.end());
    found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
    if (found_.size() > kMaxPositions) return {};
    return std::move(found_);
  }

 private:
  struct Open {
    int32_t node, stack, count;  // count: finished repetitions at a kRepeat
  };

  void Follow(const Open& open) {
    if (open.node == Node::kNone) return;
    if (++followed_ > kMaxFollowed) too_many_ = true;
    const Node& node = grammar_.nodes[open.node];
    if (node.kind == Node::kByte) return Find({open.node, open.stack});
    if (node.kind == Node::kReturn) return Return(open.stack);
    if (node.kind == Node::kSplit) {
      if (!seen_.insert(Key(open.node, open.stack)).second) return;
      open_.push_back({node.other, open.stack, 0});
      open_.push_back({node.next, open.stack, 0});
    } else if (node.kind == Node::kCall) {
      Enter(node.other, open.stack, open.node, 0);
    } else {
      Repeat(node, open);
    }
  }

  void Repeat(const Node& node, const Open& open) {
    const bool unbounded = node.max == Expressions::kUnbounded;
    if (open.count >= node.min) open_.push_back({node.next, open.stack, 0});
    if (unbounded || open.count < node.max) {
      // Beyond the minimum, an unbounded repetition does not count on.
      Enter(node.other, open.stack, open.node,
            unbounded ? std::min(open.count, node.min) : open.count);
    }
  }

  void Enter(int32_t rule, int32_t stack, int32_t node, int32_t count) {
    if (stacks_[stack].depth >= kMaxStackDepth) return;
    const int32_t frame = stacks_.Push(stack, node, count);
    if (!entered_.insert(frame).second) return;
    open_.push_back({rule, frame, 0});
  }

  void Return(int32_t stack) {
    if (stack == Stacks::kEmpty) return Find({Grammar::kReturn, stack});
    if (!seen_.insert(Key(Grammar::kReturn, stack)).second) return;
    const Frame frame = stacks_[stack];
    const Node& node = grammar_.nodes[frame.node];
    if (node.kind == Node::kCall) {
      open_.push_back({node.next, frame.below, 0});
    } else if (!node.may_be_empty || !entered_.contains(stack)) {
      // An empty repetition changes nothing.
      open_.push_back({frame.node, frame.below, frame.count + 1});
    }
  }

  void Find(Position position) {
    found_.push_back(position);
    if (found_.size() < 2 * kMaxPositions) return;
    std::sort(found_.begin(), found_.end());
    found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
    too_many_ = too_many_ || found_.size() > kMaxPositions;
  }

  static uint64_t Key(int32_t node, int32_t stack) {
    return uint64_t{static_cast<uint32_t>(node)} << 32 | static_cast<uint32_t>(stack);
  }

  const Grammar& grammar_;
  Stacks& stacks_;
  std::vector<Open> open_;
  std::unordered_set<uint64_t> seen_;
  std::unordered_set<int32_t> entered_;  // frames
  Positions found_;
  size_t followed_ = 0;
  bool too_many_ = false;
};

}  // namespace

size_t Stacks::Hash::operator()(const Key& key) const {
  uint64_t hash = static_cast<uint32_t>(key.below);
  for (const int32_t part : {key.node, key.count}) {
    hash = (hash ^ static_cast<uint32_t>(part)) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  return hash;
}

int32_t Stacks::Push(int32_t below, int32_t node, int32_t count) {
  const auto [found, added] =
      known_.try_emplace({below, node, count}, static_cast<int32_t>(frames_.size()));
  if (added) frames_.push_back({below, node, count, frames_[below].depth + 1});
  return found->second;
}

Positions StartOf(const Grammar& grammar, Stacks& stacks) {
  Closure closure(grammar, stacks);
  closure.Add(grammar.start, Stacks::kEmpty);
  return std::move(closure).Take();
}

Positions After(const Grammar& grammar, Stacks& stacks, const Positions& positions, uint8_t byte,
                size_t* steps) {
  Closure closure(grammar, stacks);
  for (const auto& [n, stack] : positions) {
    const Node& node = grammar.nodes[n];
    if (node.kind != Node::kByte || byte < node.low || byte > node.high) continue;
    closure.Add(node.next, stack);
  }
  if (steps != nullptr) *steps += positions.size() + closure.followed();
  return std::move(closure).Take();
}

Matcher::Matcher(std::shared_ptr<const Grammar> grammar)
    : grammar_(std::move(grammar)),
      positions_(StartOf(*grammar_, stacks_)),
      compact_at_(kFewFrames) {}

bool Matcher::Advance(std::string_view bytes) {
  Positions positions = positions_;
  for (const char byte : bytes) {
    positions = After(*grammar_, stacks_, positions, static_cast<uint8_t>(byte));
    if (positions.empty()) return false;
  }
  positions_ = std::move(positions);
  if (stacks_.size() > compact_at_) Compact();
  return true;
}

void Matcher::Compact() {
  Stacks kept;
  std::unordered_map<int32_t, int32_t> numbers = {{Stacks::kEmpty, Stacks::kEmpty}};
  std::vector<int32_t> above;
  for (Position& position : positions_) {
    int32_t stack = position.stack;
    for (; !numbers.contains(stack); stack = stacks_[stack].below) above.push_back(stack);
    int32_t copy = numbers.at(stack);
    for (; !above.empty(); above.pop_back()) {
      const Frame& frame = stacks_[above.back()];
      copy = kept.Push(copy, frame.node, frame.count);
      numbers.emplace(above.back(), copy);
    }
    position.stack = copy;
  }
  std::sort(positions_.begin(), positions_.end());
  stacks_ = std::move(kept);
  compact_at_ = 2 * stacks_.size() + kFewFrames;
}

}  // namespace triptych::grammar
