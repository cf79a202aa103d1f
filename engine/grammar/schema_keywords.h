// Keywords of JSON Schemas, read and checked.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_SCHEMA_KEYWORDS_H_
#define TRIPTYCH_ENGINE_GRAMMAR_SCHEMA_KEYWORDS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"

namespace triptych::grammar {

// In all functions, `schema` is an object and `path` is its place, for the GrammarError that a
// keyword of a wrong kind throws.

// Keywords of values of one type, which mean nothing for others. integer is a number.
extern const std::map<std::string, std::set<std::string>> kKeywordsOfTypes;

// The name of a value's type.
std::string TypeOf(const OrderedJson& value);

[[noreturn]] void FailAt(const std::string& path, const std::string& what);
// Refuses a keyword, with its value and what is allowed.
[[noreturn]] void RefuseKeyword(const std::string& path, const std::string& key,
                                const OrderedJson& value, const std::string& allowed);
std::string PathOf(const std::string& path, const std::string& key);
std::string PathOf(const std::string& path, const std::string& key, size_t index);

// Refuses keywords that the server does not know.
void CheckKeywords(const OrderedJson& schema, const std::string& path);
// True for keywords that constrain nothing: annotations of JSON Schema and of OpenAPI.
bool IsAnnotation(std::string_view key);
// The schema with OpenAPI's nullable as the type null.
OrderedJson WithNullAsType(const OrderedJson& schema);
// True if there are only keywords that constrain nothing.
bool SaysNothing(const OrderedJson& schema);
OrderedJson Without(const OrderedJson& schema, const std::string& key);

// A keyword that is an array, not empty. REQUIRES: the schema has it.
const OrderedJson& ListOf(const OrderedJson& schema, const std::string& key,
                          const std::string& path);
// The types of the values; all of them if the schema does not say. integer is not among them if
// number is.
std::set<std::string> TypesOf(const OrderedJson& schema, const std::string& path);
bool HasType(const std::set<std::string>& types, const OrderedJson& value);
// The values of the schema's types that const and enum leave. REQUIRES: the schema has one.
std::vector<OrderedJson> ConstantsOf(const OrderedJson& schema, const std::string& path);
std::set<std::string> RequiredOf(const OrderedJson& schema, const std::string& path);
// A schema that the member `name` of an object fits: of properties, or else additionalProperties.
const OrderedJson& PropertyOf(const OrderedJson& schema, const std::string& name);
// A count such as minLength; absent if the keyword is.
std::optional<int32_t> CountOf(const OrderedJson& schema, const std::string& key,
                               const std::string& path);
// A number, as a decimal without exponent. REQUIRES: the schema has it.
std::string DecimalOf(const OrderedJson& schema, const std::string& key, const std::string& path);

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_SCHEMA_KEYWORDS_H_
