// Model info for tests of the server's core, without an engine.
#ifndef TRIPTYCH_TESTS_SERVER_CORE_MODEL_INFO_H_
#define TRIPTYCH_TESTS_SERVER_CORE_MODEL_INFO_H_

#include <memory>

#include "server/core/model_info.h"
#include "tests/support/tokenizer.h"

namespace triptych::server {

// A model of byte tokens, with a context of 64 positions and a cache of 32.
inline ModelInfo SmallModelInfo() {
  ModelInfo model;
  model.name = "small";
  model.config.vocab_size = TestTokenizer()->vocab_size();
  model.config.max_position_embeddings = 64;
  model.info.geometry.block_positions = 16;
  model.info.blocks = 2;
  model.tokenizer = TestTokenizer();
  return model;
}

}  // namespace triptych::server

#endif  // TRIPTYCH_TESTS_SERVER_CORE_MODEL_INFO_H_
