// printf into a string.
#ifndef TRIPTYCH_ENGINE_TOOLS_FORMAT_TEXT_H_
#define TRIPTYCH_ENGINE_TOOLS_FORMAT_TEXT_H_

#include <cstdio>
#include <string>

namespace triptych::tools {

// A format of snprintf(3) with its values, cut off after 511 bytes.
template <typename... Values>
std::string FormatText(const char* format, Values... values) {
  char text[512];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

}  // namespace triptych::tools

#endif  // TRIPTYCH_ENGINE_TOOLS_FORMAT_TEXT_H_
