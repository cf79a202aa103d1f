// A GGUF file: its tensors, the model and the tokenizer that its metadata describes.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_model.h"
#include "engine/checkpoint/gguf_tokenizer.h"
#include "engine/checkpoint/sentencepiece_model.h"
#include "engine/checkpoint/tokenizer_json.h"
#include "tests/fuzz/check_tokenizer.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"

namespace triptych {
namespace {

// Reads every tensor, in no more memory than the file takes for each.
void ReadAll(const TensorSource& source, size_t file_bytes) {
  for (const std::string& name : source.TensorNames()) {
    const StoredTensor* const stored = source.Find(name);
    Promise(stored != nullptr, "a tensor that is listed is found");
    Promise(stored->bytes <= file_bytes, "tensors lie in the file");
    for (const int64_t extent : stored->shape) Promise(extent >= 0, "a shape is not negative");
    std::string data(stored->bytes, '\0');
    source.Read(name, std::as_writable_bytes(std::span(data)));
  }
}

}  // namespace

void FuzzGguf(std::string_view bytes) {
  const MemoryFile memory(bytes);
  std::unique_ptr<const GgufFile> file;
  try {
    file = std::make_unique<const GgufFile>(memory.path());
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 1000);
    return;
  }
  ReadAll(*file, bytes.size());
  try {
    const std::string text = "a b\xff <s> 12";
    const auto tokenizer = ParseGgufTokenizer(file->metadata(), file->name());
    CheckTokenizer(*tokenizer, text);
    const auto files = GgufTokenizerFiles(file->metadata(), file->name());
    const std::vector<int32_t> ends(tokenizer->end_tokens().begin(), tokenizer->end_tokens().end());
    const auto json = files.find("tokenizer.json");
    const auto again = json != files.end()
                           ? ParseTokenizerJson(json->second, json->first, {{}, ends})
                           : ParseSentencePieceModel(files.at("tokenizer.model"), "tokenizer.model",
                                                     tokenizer->begin_token().has_value(), ends);
    Promise(again->Encode(text) == tokenizer->Encode(text), "the files say the same");
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 1000);
  }
  try {
    const ModelConfig config = ReadGgufConfig(*file);
    ReadAll(*MapGgufTensors(std::move(file), config), bytes.size());
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 1000);
  }
}

}  // namespace triptych
