// Conjunction of JSON Schemas.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_MERGE_SCHEMAS_H_
#define TRIPTYCH_ENGINE_GRAMMAR_MERGE_SCHEMAS_H_

#include <functional>
#include <string>

#include "engine/base/json.h"

namespace triptych::grammar {

// The schema that a reference names; throws GrammarError. Its value must stay where it is.
using Resolve = std::function<const OrderedJson&(const std::string& reference)>;

// A schema of the values that both schemas accept. References and allOf are replaced; `anyOf` and
// `oneOf` stay, and at most one of the schemas may have one of them. Throws GrammarError if the
// keywords of both cannot be joined; its path is only the keyword's, to follow that of the schemas.
OrderedJson MergeSchemas(const OrderedJson& a, const OrderedJson& b, const Resolve& resolve);

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_MERGE_SCHEMAS_H_
