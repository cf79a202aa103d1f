// Arguments of a call as elements, which newer Qwen and GLM models write.
#ifndef TRIPTYCH_SERVER_CORE_TOOLS_XML_ARGUMENTS_H_
#define TRIPTYCH_SERVER_CORE_TOOLS_XML_ARGUMENTS_H_

#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace triptych::server {

// The JSON object of "<parameter=KEY>\nVALUE\n</parameter>", or of "<arg_key>KEY</arg_key>" and
// "<arg_value>VALUE</arg_value>", repeated. A value is JSON if it parses
// and its key is none of `texts`, and otherwise text. Absent if the text is something else.
std::optional<std::string> XmlArgumentsJson(std::string_view text,
                                            const std::set<std::string>& texts);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_TOOLS_XML_ARGUMENTS_H_
