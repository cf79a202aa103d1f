// JSON out of files that anybody may have written. Torch-free.
#ifndef TRIPTYCH_ENGINE_BASE_JSON_H_
#define TRIPTYCH_ENGINE_BASE_JSON_H_

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace triptych {

using Json = nlohmann::json;

// Parses one document in time and memory that grow as its length. Refused, beside what is no JSON:
// an object that names a member twice, of which a library would silently keep one; more than 16
// values inside each other, since printing a value recurses; more than `max_values`. `source` names
// the document in messages. Throws LoadError.
inline constexpr size_t kMaxJsonValues = size_t{1} << 20;
Json ParseJson(std::string_view text, const std::string& source,
               size_t max_values = kMaxJsonValues);

// A value in a message: its text, as Printable shows it.
std::string ShownJson(const Json& value);

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_BASE_JSON_H_
