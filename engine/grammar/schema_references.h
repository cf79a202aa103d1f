// References of JSON Schemas.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_SCHEMA_REFERENCES_H_
#define TRIPTYCH_ENGINE_GRAMMAR_SCHEMA_REFERENCES_H_

#include <string>

#include "engine/base/json.h"

namespace triptych::grammar {

// The part of `root` that "$ref": a JSON pointer in a URI's fragment (RFC 6901) names. Throws
// GrammarError if there is none; `path` is that of the schema with the reference.
const OrderedJson& ResolveReference(const OrderedJson& root, const std::string& reference,
                                    const std::string& path);

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_SCHEMA_REFERENCES_H_
