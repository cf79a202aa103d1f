// Settings of a tokenizer in the JSON files next to it.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_TOKENIZER_SETTINGS_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_TOKENIZER_SETTINGS_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/config/json_fields.h"
#include "engine/text/added_tokens.h"

namespace triptych::checkpoint {

// The special tokens that end and begin texts, as files name them. A tokenizer.json names neither.
struct TokenizerSettings {
  std::optional<std::string> end_text = {};    // eos_token
  std::vector<int32_t> end_tokens = {};        // eos_token_id
  std::string end_tokens_file = {};            // the name of the file that has eos_token_id
  std::optional<std::string> begin_text = {};  // bos_token
  std::optional<bool> begins = {};             // add_bos_token
  // Its default if tokenizer_class reads it. Absent for other classes, with which a tokenizer.json
  // decides by itself whether texts begin with a token.
  std::optional<bool> class_begins = {};
  // For a tokenizer.model: add_prefix_space, and the tokens after those of the model, in the order
  // of their ids.
  std::optional<bool> adds_space = {};
  std::vector<AddedToken> added = {};
};

// Where the properties of a tokenizer come from, for the server's log.
struct TokenizerNotes {
  std::string file;                     // "tokenizer.json", "the GGUF file"
  std::map<int32_t, std::string> ends;  // by token: "eos_token of tokenizer_config.json"
  std::string begin;                    // where the begin token comes from; empty without one
  std::vector<std::string> warnings;    // one line each: values that are passed over, and why
};

// Reads tokenizer_config.json, special_tokens_map.json, added_tokens.json, generation_config.json
// and config.json, each if it is there.
//
// As in transformers 4, the tokenizers of Llama, Code Llama, Gemma, Cohere and GPT-NeoX put
// bos_token before a text if add_bos_token says so, whatever tokenizer.json says. Other classes do
// not read add_bos_token. special_tokens_map.json and added_tokens.json count only if
// tokenizer_config.json has no added_tokens_decoder. Values of eos_token_id that can be no token
// are passed over, with a warning. Throws LoadError.
TokenizerSettings ReadTokenizerSettings(const std::filesystem::path& directory,
                                        TokenizerNotes& notes);

// The settings of the first three of these files, without end_tokens: tokenizer_config.json, and
// the two others if they count and are there. Throws LoadError.
TokenizerSettings ParseTokenizerSettings(JsonFields config, std::optional<JsonFields> map,
                                         std::optional<JsonFields> added_tokens);

// Reads eos_token_id of a config: a token or a list of tokens, without those that are passed over.
// Empty if the file or the field is absent. Throws LoadError.
std::vector<int32_t> ReadEndTokens(const std::filesystem::path& file, TokenizerNotes& notes);

// Whether published models end a text or a turn with a token of this text.
bool EndsTurns(std::string_view text);
// The same, except "</s>", which is an HTML tag in some vocabularies: a token of that text is
// special only where it ends texts.
bool OnlyEndsTurns(std::string_view text);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_TOKENIZER_SETTINGS_H_
