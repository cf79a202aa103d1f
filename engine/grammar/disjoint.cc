#include "engine/grammar/disjoint.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "engine/grammar/matcher.h"

namespace triptych::grammar {
namespace {

// Pairs of states that one text leads to, of each grammar one. A pair takes up to a millisecond.
constexpr size_t kMaxPairs = 256;

}  // namespace

bool HaveNoCommonText(const Grammar& a, const Grammar& b) {
  using Pair = std::pair<Positions, Positions>;
  Stacks of_a, of_b;
  std::set<Pair> known = {{StartOf(a, of_a), StartOf(b, of_b)}};
  std::vector<const Pair*> open = {&*known.begin()};
  while (!open.empty()) {
    const auto& [in_a, in_b] = *open.back();
    open.pop_back();
    if (MayEnd(in_a) && MayEnd(in_b)) return false;
    for (int byte = 0; byte < 256; ++byte) {
      Positions after_a = After(a, of_a, in_a, static_cast<uint8_t>(byte));
      if (after_a.empty()) continue;
      Positions after_b = After(b, of_b, in_b, static_cast<uint8_t>(byte));
      if (after_b.empty()) continue;
      const auto [pair, added] = known.emplace(std::move(after_a), std::move(after_b));
      if (added) open.push_back(&*pair);
      if (known.size() > kMaxPairs) return false;
    }
  }
  return true;
}

}  // namespace triptych::grammar
