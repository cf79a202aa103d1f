// Substring replacement.
#ifndef TRIPTYCH_ENGINE_BASE_REPLACE_ALL_H_
#define TRIPTYCH_ENGINE_BASE_REPLACE_ALL_H_

#include <string>
#include <string_view>

namespace triptych {

// Replaces each `what` in `text` by `by`, from left to right. REQUIRES: `what` is not empty.
inline std::string ReplaceAll(std::string_view text, std::string_view what, std::string_view by) {
  std::string replaced;
  for (size_t at = 0; at < text.size();) {
    if (text.substr(at).starts_with(what)) {
      replaced += by;
      at += what.size();
    } else {
      replaced += text[at++];
    }
  }
  return replaced;
}

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_REPLACE_ALL_H_
