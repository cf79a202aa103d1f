// tokenizer.json: the tokenizer of a published model. Torch-free.
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

// What ends texts, which a tokenizer.json does not say.
struct EndTokens {
  std::optional<std::string> text = {};  // of the token that is put after one
  std::vector<int32_t> tokens = {};
};

// The tokenizer that `json` describes. What changes tokens and is not supported is refused.
// `source` is the file's name for messages. Throws LoadError.
std::shared_ptr<const Tokenizer> ParseTokenizerJson(std::string_view json,
                                                    const std::string& source,
                                                    const EndTokens& ends);
std::shared_ptr<const Tokenizer> MakeJsonTokenizer(Json json, const std::string& source,
                                                   const EndTokens& ends);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_TOKENIZER_JSON_H_
