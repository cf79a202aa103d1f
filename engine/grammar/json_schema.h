// JSON Schema as expressions of a grammar.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_JSON_SCHEMA_H_
#define TRIPTYCH_ENGINE_GRAMMAR_JSON_SCHEMA_H_

#include <string_view>

#include "engine/grammar/expressions.h"

namespace triptych::grammar {

// The JSON texts that a schema of draft 2020-12 accepts, but:
//   - members of `properties` come in the order of the schema, others after them;
//   - whitespace is limited as JsonText says, integers to 15 digits, and exponents to two;
//   - integers have neither fraction nor exponent; bounded numbers have no exponent;
//   - members that `properties` does not name have keys without escapes.
// Throws GrammarError for a keyword, or a combination of keywords, that cannot be kept, with its
// path. oneOf must have alternatives that no value fits together.
Expression ParseJsonSchema(Expressions& expressions, std::string_view text);

// Any JSON object.
Expression AnyJsonObject(Expressions& expressions);

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_JSON_SCHEMA_H_
