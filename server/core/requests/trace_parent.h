// The trace that a call is part of, by W3C Trace Context.
#ifndef TRIPTYCH_SERVER_CORE_REQUESTS_TRACE_PARENT_H_
#define TRIPTYCH_SERVER_CORE_REQUESTS_TRACE_PARENT_H_

#include <string>
#include <string_view>
#include <vector>

namespace triptych::server {

// The header's name, over every transport.
inline constexpr const char* kTraceParent = "traceparent";

// VERSION-TRACEID-PARENTID-FLAGS out of a call's headers of that name, without what later versions
// may add. Empty if there is not one alone, or it is not valid.
std::string TraceParent(const std::vector<std::string>& headers);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_REQUESTS_TRACE_PARENT_H_
