// A model as the server's core sees it, without an engine behind it.
#ifndef TRIPTYCH_TESTS_SERVER_CORE_SERVED_MODEL_H_
#define TRIPTYCH_TESTS_SERVER_CORE_SERVED_MODEL_H_

#include <memory>

#include "server/core/served_model.h"

namespace triptych {

// Bytes as tokens, a context of 64 positions and a cache of 32.
inline ServedModel SmallServedModel() {
  ServedModel model;
  model.name = "small";
  model.config.vocab_size = TestTokenizer()->vocab_size();
  model.config.max_position_embeddings = 64;
  model.pool_positions = 32;
  model.tokenizer = TestTokenizer();
  return model;
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SERVER_CORE_SERVED_MODEL_H_
