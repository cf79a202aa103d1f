// Fuzz target: tokenizer.json of a checkpoint (up to the last newline) and a text (after it).
#include "engine/base/error.h"
#include "engine/checkpoint/tokenizer/tokenizer_json.h"
#include "tests/fuzz/check_tokenizer.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/targets.h"

namespace triptych {

void FuzzTokenizerJson(std::string_view bytes) {
  const size_t newline = bytes.rfind('\n');
  const std::string_view file = bytes.substr(0, newline);
  const std::string_view text = newline == bytes.npos ? "a b" : bytes.substr(newline + 1);
  try {
    CheckTokenizer(*checkpoint::ParseTokenizerJson(file, "tokenizer.json", {.end_tokens = {0}}),
                   text);
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 1000);
  }
}

}  // namespace triptych
