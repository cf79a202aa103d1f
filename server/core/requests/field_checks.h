// Checks of one field of a request.
#ifndef TRIPTYCH_SERVER_CORE_REQUESTS_FIELD_CHECKS_H_
#define TRIPTYCH_SERVER_CORE_REQUESTS_FIELD_CHECKS_H_

#include <spdlog/fmt/fmt.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/range.h"
#include "server/core/error.h"
#include "server/core/model_info.h"

namespace triptych::server {

// Nothing if the value is in the range.
template <typename T>
std::optional<Error> CheckRange(const std::string& field, T value, const Range<T>& range) {
  if (range.Contains(value)) return std::nullopt;
  return InvalidArgument(
      field, fmt::format("is {}; allowed: {}{} to {}", value, range.above_low ? "above " : "",
                         range.low, range.high));
}

// Nothing if a list has an allowed number of entries, which are called `what`.
inline std::optional<Error> CheckCount(const std::string& field, size_t count,
                                       const Range<size_t>& range, std::string_view what) {
  if (range.Contains(count)) return std::nullopt;
  if (count < range.low) {
    return InvalidArgument(
        field, fmt::format("has {} {}; allowed: {} to {}", count, what, range.low, range.high));
  }
  return InvalidArgument(
      field, fmt::format("has more than {0} {1}; allowed: at most {0}", range.high, what));
}

// Nothing if every id is one of the model's.
inline std::optional<Error> CheckTokenIds(std::span<const int32_t> ids, const ModelInfo& model,
                                          const std::string& field) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < model.config.vocab_size) continue;
    return InvalidArgument(
        fmt::format("{}[{}]", field, i),
        fmt::format("is {}; allowed: 0 to {}", ids[i], model.config.vocab_size - 1));
  }
  return std::nullopt;
}

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_REQUESTS_FIELD_CHECKS_H_
