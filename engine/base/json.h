// JSON parser for untrusted documents.
#ifndef TRIPTYCH_ENGINE_BASE_JSON_H_
#define TRIPTYCH_ENGINE_BASE_JSON_H_

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace triptych {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // members keep the order of the text

// Parses one document in time and memory linear in its length. `source` names the document in
// messages. Throws LoadError if the text is not JSON (also after a NUL byte), and if
//   - an object names a member twice: a library would silently keep one of them;
//   - values are nested more than `max_depth` levels deep: printing a value recurses;
//   - there are more than `max_values` values.
inline constexpr size_t kMaxJsonValues = size_t{1} << 20;
inline constexpr size_t kMaxJsonDepth = 16;
Json ParseJson(std::string_view text, const std::string& source, size_t max_values = kMaxJsonValues,
               size_t max_depth = kMaxJsonDepth);
// Likewise, with members in the order of the text. Finding a member takes time linear in their
// number.
OrderedJson ParseOrderedJson(std::string_view text, const std::string& source, size_t max_values,
                             size_t max_depth);

// The text of member `name` of the object whose text is `object`; empty if it has none. REQUIRES:
// ParseJson accepts `object`.
std::string_view MemberText(std::string_view object, std::string_view name);

// The text of a value for a message, as Printable shows it.
std::string ShownJson(const Json& value);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_JSON_H_
