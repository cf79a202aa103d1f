// Normalization of a text before pre-tokenization.
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
  std::optional<size_t> match_bytes;  // of each match, if all have the same length
};
// Strips white space.
struct StripStep {
  bool left;
  bool right;
};
using NormalizerStep = std::variant<UnicodeForm, PrependStep, ReplaceStep, StripStep>;

// Applies the steps in order. An empty text stays empty. REQUIRES: UTF-8. Throws EncodeError, and
// std::runtime_error if ICU has no data.
std::string Normalize(const std::vector<NormalizerStep>& steps, std::string_view text,
                      EncodeBudget& budget);

// Maximum bytes of a text that become one byte, m: Normalize turns n bytes into at least n / m.
// Absent if any number of bytes may vanish.
std::optional<int64_t> MostShrinkage(const std::vector<NormalizerStep>& steps);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_NORMALIZER_H_
