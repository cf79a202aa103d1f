// Reader of tokenizer.json, the tokenizer of a published model.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_TOKENIZER_JSON_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_TOKENIZER_JSON_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "engine/text/tokenizer.h"

namespace triptych::checkpoint {

// The tokens that end texts; a tokenizer.json does not name them.
struct EndTokens {
  std::optional<std::string> text = {};  // the text of such a token
  std::vector<int32_t> tokens = {};
};

// The tokenizer that `json` describes. Refuses unsupported settings that change tokens. `source` is
// the file's name for messages. Throws LoadError.
std::shared_ptr<const Tokenizer> ParseTokenizerJson(std::string_view json,
                                                    const std::string& source,
                                                    const EndTokens& ends);
std::shared_ptr<const Tokenizer> MakeJsonTokenizer(Json json, const std::string& source,
                                                   const EndTokens& ends);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_TOKENIZER_JSON_H_
