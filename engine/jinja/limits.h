// Variables and bounds of one rendering.
#ifndef TRIPTYCH_ENGINE_JINJA_LIMITS_H_
#define TRIPTYCH_ENGINE_JINJA_LIMITS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/jinja/value.h"

namespace triptych::jinja {

// Variables of a rendering, by name.
using Variables = std::vector<std::pair<std::string, Value>>;

// Bounds of one rendering. A published template takes some hundred steps for each message.
struct Limits {
  int64_t max_steps = int64_t{1} << 22;  // nodes of the syntax tree, items, or 4 to 128 bytes
  size_t max_bytes = size_t{64} << 20;   // of values at one time, the variables excluded
  size_t max_output_bytes = size_t{16} << 20;
};

// Maximum nesting of statements, expressions and calls while a template is rendered.
inline constexpr int kMaxRenderDepth = 1000;

}  // namespace triptych::jinja

#endif  // TRIPTYCH_ENGINE_JINJA_LIMITS_H_
