#include "engine/base/quantities.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <iomanip>
#include <map>
#include <sstream>
#include <system_error>

namespace triptych {
namespace {

std::string SeparateThousands(std::string number) {
  const size_t first_digit = number.front() == '-' ? 1 : 0;
  for (size_t at = std::min(number.find('.'), number.size()); at > first_digit + 3;) {
    at -= 3;
    number.insert(at, 1, ',');
  }
  return number;
}

}  // namespace

std::string FormatDecimal(double value, int decimals) {
  std::ostringstream stream;
  stream << std::fixed << std::setprecision(decimals) << value;
  return SeparateThousands(stream.str());
}

std::string FormatCount(int64_t count) { return SeparateThousands(std::to_string(count)); }

std::string FormatBytes(int64_t bytes) {
  if (std::abs(bytes) < 1024) return std::to_string(bytes) + " B";
  static constexpr std::array kUnits = {" KiB", " MiB", " GiB", " TiB", " PiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // 1023.95 would be rounded up to 1024.0.
  while (std::abs(value) >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return FormatDecimal(value, 1) + kUnits[unit];
}

std::optional<int64_t> ParseBytes(std::string_view text) {
  static const std::map<std::string, double, std::less<>> units = {
      {"", 1},         {"B", 1},    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
      {"TiB", 0x1p40}, {"KB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
  double number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  const auto unit = units.find(std::string_view(end, last - end));
  if (error != std::errc() || unit == units.end()) return std::nullopt;
  const double bytes = number * unit->second;
  if (!(bytes >= 1 && bytes <= 0x1p62)) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

}  // namespace triptych
