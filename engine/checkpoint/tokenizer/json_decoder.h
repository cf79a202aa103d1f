// The decoder of a tokenizer.json: from tokens to bytes.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_JSON_DECODER_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_JSON_DECODER_H_

#include <string>
#include <vector>

#include "engine/base/json.h"

namespace triptych::checkpoint {

// Rules that turn pieces into bytes.
struct Decoding {
  struct Replacement {
    std::string what;
    std::string by;
  };

  bool byte_level = false;
  bool byte_fallback = false;
  std::vector<Replacement> replacements;
  bool drops_leading_space = false;
  std::string before;  // goes before each token: " " without a decoder

  // The bytes of a piece that is neither special nor added.
  std::string Bytes(const std::string& piece) const;
};

// Parses a decoder. Null for none: tokens are words with a space between them. `source` names it in
// messages. Throws LoadError.
Decoding ParseDecoder(Json json, const std::string& source);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_JSON_DECODER_H_
