// Archives of the models' tokenizer files, for routers that tokenize themselves.
#ifndef TRIPTYCH_SERVER_CORE_TOKENIZER_BUNDLES_H_
#define TRIPTYCH_SERVER_CORE_TOKENIZER_BUNDLES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "server/core/error.h"
#include "server/core/model_info.h"

namespace triptych::server {

struct TokenizerBundle {
  std::string zip;     // without compression
  std::string sha256;  // of it, in hexadecimal
};

// Reads the files on demand, and keeps an archive while a caller has it: concurrent callers share
// one. Not thread-safe.
class TokenizerBundles {
 public:
  static constexpr int64_t kMaxBytes = int64_t{200} << 20;  // of the files of one archive

  // NOT_FOUND if the checkpoint has no such files, or too large ones.
  Result<std::shared_ptr<const TokenizerBundle>> Get(const ModelInfo& model);

 private:
  std::map<std::string, std::weak_ptr<const TokenizerBundle>> bundles_;  // by model
};

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_CORE_TOKENIZER_BUNDLES_H_
