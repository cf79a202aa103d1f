// What a text is changed to before it is cut into tokens. Torch-free.
#ifndef TRIPTYCH_ENGINE_TEXT_NORMALIZER_H_
#define TRIPTYCH_ENGINE_TEXT_NORMALIZER_H_

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/text/regex.h"

namespace triptych {

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

struct PrependStep {
  std::string text;
};
struct ReplaceStep {
  Regex pattern;
  std::string by;
  bool shortens;  // may be shorter than what matches
};
// Of white space.
struct StripStep {
  bool left;
  bool right;
};
using NormalizerStep = std::variant<UnicodeForm, PrependStep, ReplaceStep, StripStep>;

// Takes the steps one after the other. An empty text stays empty. REQUIRES: UTF-8. Throws
// EncodeError, also where a text would grow beyond kMaxNormalizedGrowth times its length.
inline constexpr size_t kMaxNormalizedGrowth = 64;
std::string Normalize(const std::vector<NormalizerStep>& steps, std::string_view text);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_NORMALIZER_H_
