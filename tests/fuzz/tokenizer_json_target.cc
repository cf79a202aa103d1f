// tokenizer.json of a checkpoint, and a text: what stands before the last newline, and after it.
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/utf8.h"
#include "engine/checkpoint/llama2c_tokenizer.h"
#include "engine/checkpoint/tokenizer_json.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/targets.h"

namespace triptych {
namespace {

void CheckTokenizer(const Tokenizer& tokenizer, std::string_view text) {
  for (const SpecialTokens special : {SpecialTokens::kAsText, SpecialTokens::kParsed}) {
    std::vector<int32_t> tokens;
    try {
      tokens = tokenizer.Encode(text, special);
    } catch (const EncodeError& e) {
      PromiseClearLine(e.what(), 1000);
      continue;
    }
    TokenStream stream;
    std::string streamed;
    for (const int32_t token : tokens) {
      Promise(token >= 0 && token < tokenizer.vocab_size(), "a text is of the vocabulary's tokens");
      streamed += stream.Push(tokenizer, token);
    }
    Promise(streamed == tokenizer.Decode(tokens), "a stream is the whole text");
  }
}

}  // namespace

void FuzzTokenizerJson(std::string_view bytes) {
  const size_t newline = bytes.rfind('\n');
  const std::string_view file = bytes.substr(0, newline);
  const std::string_view text = newline == bytes.npos ? "a b" : bytes.substr(newline + 1);
  try {
    CheckTokenizer(*ParseTokenizerJson(file, "tokenizer.json", {.text = {}, .tokens = {0}}), text);
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 1000);
  }
  try {
    CheckTokenizer(*ParseLlama2cTokenizer(file, "tokenizer.bin"), text);
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 1000);
  }
}

}  // namespace triptych
