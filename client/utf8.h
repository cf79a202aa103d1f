#ifndef TRIPTYCH_CLIENT_UTF8_H_
#define TRIPTYCH_CLIENT_UTF8_H_

#include <cstddef>
#include <optional>
#include <string_view>

namespace triptych::client {

// The offset of the first byte that is not part of a well-formed UTF-8 character; none if `text`
// is valid, which protobuf requires of every string.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_UTF8_H_
