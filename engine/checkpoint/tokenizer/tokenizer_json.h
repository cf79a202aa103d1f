// Reader of tokenizer.json, the tokenizer of a published model.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_TOKENIZER_JSON_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_TOKENIZER_JSON_H_

#include <memory>
#include <string>
#include <string_view>

#include "engine/base/json.h"
#include "engine/checkpoint/tokenizer/tokenizer_settings.h"
#include "engine/text/tokenizer.h"

namespace triptych::checkpoint {

// The tokenizer that `json` describes, with tokens that end and begin texts as `settings` has them.
// A token that ends texts is special, whatever its flag says, and so is an added token that
// EndsTurns. Refuses unsupported settings that change tokens. `source` is the file's name for
// messages. Adds to `notes`, unless it is null. Throws LoadError.
std::shared_ptr<const Tokenizer> ParseTokenizerJson(std::string_view json,
                                                    const std::string& source,
                                                    const TokenizerSettings& settings,
                                                    TokenizerNotes* notes = nullptr);
std::shared_ptr<const Tokenizer> MakeJsonTokenizer(Json json, const std::string& source,
                                                   const TokenizerSettings& settings,
                                                   TokenizerNotes* notes = nullptr);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_TOKENIZER_JSON_H_
