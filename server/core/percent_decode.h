// Percent-encoded text.
#ifndef TRIPTYCH_SERVER_CORE_PERCENT_DECODE_H_
#define TRIPTYCH_SERVER_CORE_PERCENT_DECODE_H_

#include <string>
#include <string_view>

namespace triptych::server {

// Decodes %XX; anything else stays unchanged.
std::string PercentDecode(std::string_view text);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_PERCENT_DECODE_H_
