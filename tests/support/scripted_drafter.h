// Drafter that knows a sequence's output, and is wrong on request.
#ifndef TRIPTYCH_TESTS_SUPPORT_SCRIPTED_DRAFTER_H_
#define TRIPTYCH_TESTS_SUPPORT_SCRIPTED_DRAFTER_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "engine/serving/drafter.h"
#include "engine/serving/speculation.h"

namespace triptych {

class ScriptedDrafter final : public serving::Drafter {
 public:
  // `output`: the tokens that will follow the given ones; `wrong`: how many of ten are drafted
  // wrong.
  using Output = std::function<std::vector<int32_t>(std::span<const int32_t> tokens)>;
  ScriptedDrafter(Output output, int wrong) : output_(std::move(output)), wrong_(wrong) {}

  void Propose(std::span<const int32_t> tokens, int64_t most, serving::Draft& draft) override {
    draft.tokens = output_(tokens);
    draft.strength = static_cast<int>(tokens.size() % serving::Draft::kStrengths);
    // Drafts have every length.
    const auto length = static_cast<int64_t>(1 + tokens.size() * 7 % serving::kMostDrafted);
    draft.tokens.resize(std::min({length, most, std::ssize(draft.tokens)}));
    for (size_t i = 0; i < draft.tokens.size(); ++i) {
      const uint64_t place = (tokens.size() + i) * 0x9e3779b97f4a7c15;
      if (static_cast<int>((place >> 32) % 10) < wrong_) draft.tokens[i] ^= 1;
    }
  }

 private:
  const Output output_;
  const int wrong_;
};

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_SCRIPTED_DRAFTER_H_
