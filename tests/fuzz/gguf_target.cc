// A GGUF file: its tensors, the model and the tokenizer that its metadata describes.
#include <memory>

#include "engine/base/error.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_model.h"
#include "engine/checkpoint/gguf_tokenizer.h"
#include "tests/fuzz/check_tokenizer.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/read_all.h"
#include "tests/fuzz/targets.h"

namespace triptych {

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
    CheckTokenizer(*ParseGgufTokenizer(file->metadata(), file->name()), kHostileText);
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
