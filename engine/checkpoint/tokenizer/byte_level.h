// Alphabet of byte-level vocabularies.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_BYTE_LEVEL_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_BYTE_LEVEL_H_

#include <optional>
#include <string>
#include <string_view>

namespace triptych::checkpoint {

// The bytes of a piece of a byte-level vocabulary; none if a character is outside its alphabet.
std::optional<std::string> ByteLevelBytes(std::string_view piece);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_BYTE_LEVEL_H_
