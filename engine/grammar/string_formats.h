// Formats of strings that JSON Schema names.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_STRING_FORMATS_H_
#define TRIPTYCH_ENGINE_GRAMMAR_STRING_FORMATS_H_

#include <optional>
#include <string>
#include <string_view>

namespace triptych::grammar {

// The regular expression of texts of a format, which may leave out some of them; nullopt if the
// format is not supported. With a pattern, which may leave a URI endless, a URI has parts of any
// length: both together then need few states.
std::optional<std::string> FormatPattern(std::string_view format, bool with_pattern);
// True for formats that do not tell texts apart, such as password.
bool IsAnyText(std::string_view format);
// The names of the supported formats, for messages.
std::string FormatNames();

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_STRING_FORMATS_H_
