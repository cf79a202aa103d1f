// Matcher of a grammar: an automaton whose states are sets of stacks.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_MATCHER_H_
#define TRIPTYCH_ENGINE_GRAMMAR_MATCHER_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/grammar/compile.h"

namespace triptych::grammar {

// A rule that was called: where it returns to, and the repetitions before it.
struct Frame {
  int32_t below = 0;  // the frame under it; Stacks::kEmpty is none
  int32_t node = 0;   // kCall or kRepeat
  int32_t count = 0;  // kRepeat: finished repetitions
  int32_t depth = 0;  // frames under it
};

// Frames that stacks share: equal stacks have one number. Not thread-safe.
class Stacks {
 public:
  static constexpr int32_t kEmpty = 0;

  Stacks() : frames_(1) {}
  int32_t Push(int32_t below, int32_t node, int32_t count);
  const Frame& operator[](int32_t stack) const { return frames_[stack]; }
  size_t size() const { return frames_.size(); }

 private:
  struct Key {
    int32_t below, node, count;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const;
  };
  std::vector<Frame> frames_;
  std::unordered_map<Key, int32_t, Hash> known_;
};

// A node that reads a byte, or kReturn on the empty stack: the text may end.
struct Position {
  int32_t node = 0;
  int32_t stack = 0;
  friend auto operator<=>(const Position&, const Position&) = default;
};

// Sorted; no two are equal. None: no text continues.
using Positions = std::vector<Position>;

// The positions before any byte.
Positions StartOf(const Grammar& grammar, Stacks& stacks);
// The positions after a byte. A text that needs more than kMaxPositions, or deeper stacks than
// kMaxStackDepth, is refused like one that the grammar does not have. `steps`, if given, counts
// the nodes that were followed.
Positions After(const Grammar& grammar, Stacks& stacks, const Positions& positions, uint8_t byte,
                size_t* steps = nullptr);

inline bool MayEnd(const Positions& positions) {
  return !positions.empty() && positions.front().node == Grammar::kReturn;
}

// How far a text has come in a grammar. Copyable; not thread-safe.
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const Grammar> grammar);

  // Reads more of the text. False, with nothing read, if no text of the grammar goes on like this.
  bool Advance(std::string_view bytes);
  // True if the text so far is one of the grammar's.
  bool MayEnd() const { return grammar::MayEnd(positions_); }
  // True if nothing can follow.
  bool complete() const { return MayEnd() && positions_.size() == 1; }

  const Positions& positions() const { return positions_; }
  const Stacks& stacks() const { return stacks_; }

 private:
  // Forgets frames that no position needs.
  void Compact();

  std::shared_ptr<const Grammar> grammar_;
  Stacks stacks_;
  Positions positions_;
  size_t compact_at_;
};

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_MATCHER_H_
