// Fuzz target: a model and a tokenizer of llama2.c.
#include "engine/base/error.h"
#include "engine/checkpoint/llama2c_model.h"
#include "engine/checkpoint/tokenizer/llama2c_tokenizer.h"
#include "tests/fuzz/check_tokenizer.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/read_all.h"
#include "tests/fuzz/targets.h"

namespace triptych {

void FuzzLlama2c(std::string_view bytes) {
  const MemoryFile memory(bytes);
  try {
    const checkpoint::OpenedCheckpoint opened = checkpoint::OpenLlama2c(memory.path());
    ReadAll(*opened.tensors, bytes.size());
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 1000);
  }
  try {
    CheckTokenizer(*checkpoint::ParseLlama2cTokenizer(bytes, "tokenizer.bin"), kHostileText);
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 1000);
  }
}

}  // namespace triptych
