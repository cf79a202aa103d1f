// Numbers from text. Torch-free.
#ifndef TRIPTYCH_ENGINE_BASE_PARSE_H_
#define TRIPTYCH_ENGINE_BASE_PARSE_H_

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace triptych {

// The number that all of `text` is, in decimal; nothing if it is none or does not fit the type.
template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

inline std::optional<int64_t> ParseInteger(std::string_view text) {
  return ParseNumber<int64_t>(text);
}

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_PARSE_H_
