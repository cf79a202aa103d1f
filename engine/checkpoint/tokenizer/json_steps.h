// Parts that the sections of a tokenizer.json have in common.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_JSON_STEPS_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_JSON_STEPS_H_

#include <cstddef>
#include <string>

#include "engine/base/json.h"
#include "engine/checkpoint/config/json_fields.h"

namespace triptych::checkpoint {

inline constexpr size_t kMaxTokenizerJsonPieceBytes = 4096;

// "SOURCE[INDEX]", for messages.
std::string IndexedSource(const std::string& source, size_t index);

// A text of 1 to kMaxTokenizerJsonPieceBytes. Throws LoadError.
std::string NonEmptyText(JsonFields& fields, const std::string& field,
                         const Json& fallback = nullptr);

// Throws LoadError if a section with this number of steps cannot have another one.
void RequireFewSteps(size_t steps, const std::string& source);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_JSON_STEPS_H_
