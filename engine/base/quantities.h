// Human-readable counts, sizes and decimal numbers.
#ifndef TRIPTYCH_ENGINE_BASE_QUANTITIES_H_
#define TRIPTYCH_ENGINE_BASE_QUANTITIES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace triptych {

// "1,234,567".
std::string FormatCount(int64_t count);
// "512 B", "4.0 KiB", "1.5 GiB".
std::string FormatBytes(int64_t bytes);
// "12.3", with thousands separated and `decimals` digits after the point.
std::string FormatDecimal(double value, int decimals);

// Parses "1073741824", "512MiB", "1.5GiB" or "1GB". Allowed: 1 to 2^62 bytes, rounded down to whole
// bytes.
std::optional<int64_t> ParseBytes(std::string_view text);
// The texts that ParseBytes accepts, for messages.
inline constexpr const char* kBytesAllowed =
    "bytes, a number with KiB, MiB, GiB, TiB, KB, MB, GB or TB";

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_QUANTITIES_H_
