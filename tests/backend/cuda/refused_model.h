// A model that the CUDA backend refuses.
#ifndef TRIPTYCH_TESTS_BACKEND_CUDA_REFUSED_MODEL_H_
#define TRIPTYCH_TESTS_BACKEND_CUDA_REFUSED_MODEL_H_

#include <filesystem>

#include "engine/decoder/write_weights.h"
#include "tests/support/random_model.h"

namespace triptych {

inline constexpr const char* kRefusal =
    "layer 0: 1 heads whose keys and values have 12002 elements; the CUDA backend allows at most "
    "65535 and 12000; --device cpu serves it";

// Writes a checkpoint of a decoder with a wide head, which CheckServedByCuda refuses for kRefusal.
inline void WriteRefusedModel(const std::filesystem::path& directory) {
  ModelConfig config = SmallModel(AttentionKind::kMha);
  config.num_hidden_layers = 1;
  config.num_attention_heads = config.num_key_value_heads = 1;
  config.head_dim = 6001;
  SaveCheckpoint(directory, config, RandomWeights(config, 1));
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_BACKEND_CUDA_REFUSED_MODEL_H_
