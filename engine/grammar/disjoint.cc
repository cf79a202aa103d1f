#include "engine/grammar/disjoint.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "engine/grammar/matcher.h"

namespace triptych::grammar {

bool HaveNoCommonText(const Grammar& a, const Grammar& b, size_t& work) {
  constexpr int kBytes = 256;
  using Pair = std::pair<Positions, Positions>;
  Stacks of_a, of_b;
  std::set<Pair> known = {{StartOf(a, of_a), StartOf(b, of_b)}};
  std::vector<const Pair*> open = {&*known.begin()};
  while (!open.empty()) {
    const auto& [in_a, in_b] = *open.back();
    open.pop_back();
    if (MayEnd(in_a) && MayEnd(in_b)) return false;
    size_t steps = kBytes;
    for (int byte = 0; byte < kBytes; ++byte) {
      Positions after_a = After(a, of_a, in_a, static_cast<uint8_t>(byte), &steps);
      if (after_a.empty()) continue;
      Positions after_b = After(b, of_b, in_b, static_cast<uint8_t>(byte), &steps);
      if (after_b.empty()) continue;
      const auto [pair, added] = known.emplace(std::move(after_a), std::move(after_b));
      if (added) open.push_back(&*pair);
    }
    if (steps > work) {
      work = 0;
      return false;
    }
    work -= steps;
  }
  return true;
}

}  // namespace triptych::grammar
