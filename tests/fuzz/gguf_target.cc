// Fuzz target: a GGUF file's tensors, and the model and the tokenizer of its metadata.
#include <memory>
#include <vector>

#include "engine/base/error.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_model.h"
#include "engine/checkpoint/tokenizer/gguf_tokenizer.h"
#include "engine/checkpoint/tokenizer/sentencepiece_model.h"
#include "engine/checkpoint/tokenizer/tokenizer_json.h"
#include "tests/fuzz/check_tokenizer.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/read_all.h"
#include "tests/fuzz/targets.h"

namespace triptych {

void FuzzGguf(std::string_view bytes) {
  const MemoryFile memory(bytes);
  std::unique_ptr<const checkpoint::GgufFile> file;
  try {
    file = std::make_unique<const checkpoint::GgufFile>(memory.path());
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 1000);
    return;
  }
  ReadAll(*file, bytes.size());
  try {
    const auto tokenizer = checkpoint::ParseGgufTokenizer(file->metadata(), file->name());
    CheckTokenizer(*tokenizer, kHostileText);
    const auto files = checkpoint::GgufTokenizerFiles(file->metadata(), file->name());
    const checkpoint::TokenizerSettings settings{
        .end_tokens = {tokenizer->end_tokens().begin(), tokenizer->end_tokens().end()},
        .begins = tokenizer->begin_token().has_value()};
    const auto json = files.find("tokenizer.json");
    const auto again = json != files.end()
                           ? checkpoint::ParseTokenizerJson(json->second, json->first, settings)
                           : checkpoint::ParseSentencePieceModel(files.at("tokenizer.model"),
                                                                 "tokenizer.model", settings);
    Promise(again->Encode(kHostileText) == tokenizer->Encode(kHostileText),
            "the files say the same");
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 1000);
  }
  try {
    const ModelConfig config = checkpoint::ReadGgufConfig(*file).config;
    // Blocks of two-bit integers take the most: 84 bytes become 256 float32 numbers.
    ReadAll(*checkpoint::MapGgufTensors(std::move(file), config), 13 * bytes.size());
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 1000);
  }
}

}  // namespace triptych
