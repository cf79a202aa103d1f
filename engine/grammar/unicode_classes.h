// Unicode's classes of characters for regular expressions.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_UNICODE_CLASSES_H_
#define TRIPTYCH_ENGINE_GRAMMAR_UNICODE_CLASSES_H_

#include <cstddef>
#include <optional>
#include <string_view>

#include "engine/grammar/expressions.h"

namespace triptych::grammar {

// The characters of a class, without surrogates: of a general category ("L", "Lu"), of a script
// ("Greek"), of a property that characters have or lack ("Alphabetic"), "Any", "ASCII" or
// "Assigned"; also as "Script=Greek", "gc=L" or "scx=Greek". Case, spaces, "_" and "-" of ICU's
// names do not count. Absent without such a class. Thread-safe.
std::optional<CharacterRanges> UnicodeClass(std::string_view name);

// The ranges and all characters that differ from one of theirs only in case, by Unicode's simple
// case folding. REQUIRES: normalized. Time is linear in CasedCharacters(ranges).
CharacterRanges CaseClosed(const CharacterRanges& ranges);
// The number of characters in the ranges that have another case.
size_t CasedCharacters(const CharacterRanges& ranges);

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_UNICODE_CLASSES_H_
