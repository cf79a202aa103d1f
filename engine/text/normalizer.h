// What a text is changed to before it is cut into tokens. Torch-free.
#ifndef TRIPTYCH_ENGINE_TEXT_NORMALIZER_H_
#define TRIPTYCH_ENGINE_TEXT_NORMALIZER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/text/encode_budget.h"
#include "engine/text/regex.h"

namespace triptych {

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

struct PrependStep {
  std::string text;
};
struct ReplaceStep {
  Regex pattern;
  std::string by;
  std::optional<size_t> match_bytes;  // of each match, if all are as long
};
// Of white space.
struct StripStep {
  bool left;
  bool right;
};
using NormalizerStep = std::variant<UnicodeForm, PrependStep, ReplaceStep, StripStep>;

// Takes the steps one after the other. An empty text stays empty. REQUIRES: UTF-8. Throws
// EncodeError, and std::runtime_error where ICU has no data.
std::string Normalize(const std::vector<NormalizerStep>& steps, std::string_view text,
                      EncodeBudget& budget);

// How many bytes of a text become one, at most: what Normalize makes of n bytes is no shorter than
// n divided by it. None if any number may vanish.
std::optional<int64_t> MostShrinkage(const std::vector<NormalizerStep>& steps);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_NORMALIZER_H_
