// Reader of llama2.c's checkpoint file: a header and float32 numbers.
// Format: https://github.com/karpathy/llama2.c, export.py, legacy_export.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_LLAMA2C_MODEL_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_LLAMA2C_MODEL_H_

#include <filesystem>

#include "engine/checkpoint/open_checkpoint.h"

namespace triptych::checkpoint {

// Opens a file of the first version, which has no magic number: seven int32, then the tensors. The
// int32 are dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size (negative if the output
// matrix is not the embedding) and seq_len. Before the output matrix lie two tables of rotary
// positions, which are not read. Rotary pairs are (2i, 2i + 1), heads are grouped contiguously.
// Refuses a file whose length is not the one of its header. Throws LoadError.
OpenedCheckpoint OpenLlama2c(const std::filesystem::path& file);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_LLAMA2C_MODEL_H_
