// Fuzz target: tokenizer.model of a checkpoint.
#include "engine/base/error.h"
#include "engine/checkpoint/tokenizer/sentencepiece_model.h"
#include "tests/fuzz/check_tokenizer.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/targets.h"

namespace triptych {

void FuzzSentencePiece(std::string_view bytes) {
  try {
    CheckTokenizer(*checkpoint::ParseSentencePieceModel(bytes, "tokenizer.model", {}),
                   kHostileText);
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 1000);
  }
}

}  // namespace triptych
