// The checkpoint file of llama2.c: a header and float32 numbers. Torch-free.
// Format: https://github.com/karpathy/llama2.c, export.py, legacy_export.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_LLAMA2C_MODEL_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_LLAMA2C_MODEL_H_

#include <filesystem>

#include "engine/checkpoint/open_checkpoint.h"

namespace triptych::checkpoint {

// A file of the first version, which has no magic number: seven int32 (dim, hidden_dim, n_layers,
// n_heads, n_kv_heads, vocab_size, which is negative where the output matrix is one of its own, and
// seq_len), then the tensors, and before the output matrix two tables of rotary positions that are
// not read. Rotary pairs are (2i, 2i + 1), heads grouped contiguously. A file that is longer or
// shorter than its header says is refused. Throws LoadError.
OpenedCheckpoint OpenLlama2c(const std::filesystem::path& file);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_LLAMA2C_MODEL_H_
