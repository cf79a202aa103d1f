// Number parser.
#ifndef TRIPTYCH_ENGINE_BASE_PARSE_H_
#define TRIPTYCH_ENGINE_BASE_PARSE_H_

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace triptych {

// Parses all of `text` as a decimal number, without blanks or a plus sign. Rejects NaN and
// infinities.
template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number value = 0;
  const char* const end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || after != end) return std::nullopt;
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(value)) return std::nullopt;
  }
  return value;
}

// Like the above, and rejects numbers outside [low, high].
template <typename Number>
std::optional<Number> ParseNumber(std::string_view text, Number low, Number high) {
  const std::optional<Number> value = ParseNumber<Number>(text);
  return value && *value >= low && *value <= high ? value : std::nullopt;
}

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_PARSE_H_
