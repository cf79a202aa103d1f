#include "engine/checkpoint/load_tokenizer.h"

#include "engine/text/byte_tokenizer.h"

namespace triptych {

std::shared_ptr<const Tokenizer> LoadTokenizer(const std::filesystem::path& /*directory*/) {
  return std::make_shared<const ByteTokenizer>();
}

void CheckVocabulary(const Tokenizer& tokenizer, const ModelConfig& config,
                     const std::string& source) {
  if (config.vocab_size >= tokenizer.vocab_size()) return;
  throw LoadError(source + ": vocab_size is " + std::to_string(config.vocab_size) +
                  "; its tokenizer needs at least " + std::to_string(tokenizer.vocab_size()));
}

}  // namespace triptych
