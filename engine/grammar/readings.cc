#include "engine/grammar/readings.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <unordered_map>

#include "engine/grammar/compile.h"
#include "engine/grammar/error.h"
#include "engine/grammar/limits.h"
#include "engine/grammar/matcher.h"

namespace triptych::grammar {
namespace {

// A pattern with at most this number of combinations of counts is not tried.
constexpr int64_t kFewCounts = 64;
// Bytes without more positions than before, after which no further text is tried.
constexpr int kPatience = 64;

// The combinations of counts that nested repetitions can have, at most kMaxPositions.
class Counts {
 public:
  explicit Counts(const Expressions& expressions) : expressions_(expressions) {}

  int64_t Of(Expression expression) {
    const auto found = known_.find(expression.id);
    if (found != known_.end()) return found->second;
    const Expressions::Item& item = expressions_[expression];
    if (item.kind == Expressions::Item::kRule) return 1;
    int64_t counts = 1;
    for (const Expression part : item.parts) counts = std::max(counts, Of(part));
    if (item.kind == Expressions::Item::kRepeat) {
      counts *= std::max({item.min, item.max, int32_t{1}});
    }
    counts = std::min(counts, static_cast<int64_t>(kMaxPositions));
    known_.emplace(expression.id, counts);
    return counts;
  }

 private:
  const Expressions& expressions_;
  std::unordered_map<int32_t, int64_t> known_;  // by expression
};

// The first of the bytes that most positions read; absent if none reads any.
std::optional<uint8_t> MostReadByte(const Grammar& grammar, const Positions& positions) {
  std::array<int, 257> changes{};  // of the number of positions, by byte
  for (const Position& position : positions) {
    const Node& node = grammar.nodes[position.node];
    if (node.kind != Node::kByte) continue;
    ++changes[node.low];
    --changes[node.high + 1];
  }
  std::inclusive_scan(changes.begin(), changes.end(), changes.begin());
  const auto most = std::max_element(changes.begin(), changes.end());
  if (*most == 0) return std::nullopt;
  return static_cast<uint8_t>(most - changes.begin());
}

}  // namespace

void CheckReadings(const Expressions& expressions, Expression pattern, size_t& work) {
  if (work == 0 || Counts(expressions).Of(pattern) <= kFewCounts) return;
  const Grammar grammar = Compile(expressions, pattern);
  work -= std::min(work, grammar.nodes.size());
  Stacks stacks;
  Positions positions = StartOf(grammar, stacks);
  size_t most = positions.size();
  for (int patience = kPatience; patience > 0 && work > 0; --patience) {
    const std::optional<uint8_t> byte = MostReadByte(grammar, positions);
    if (!byte) return;
    size_t steps = 0;
    positions = After(grammar, stacks, positions, *byte, &steps);
    work -= std::min(work, steps);
    if (positions.empty()) {
      throw GrammarError("reads a text in too many ways (more than " +
                         std::to_string(kMaxPositions) +
                         " positions of the matcher), by its counted repetitions; allowed: "
                         "repetitions of texts that show where they end");
    }
    if (positions.size() > most) patience = kPatience;
    most = std::max(most, positions.size());
  }
}

}  // namespace triptych::grammar
