// Tensors of a checkpoint in several safetensors files (shards), and the index of these files.
// Format: https://huggingface.co/docs/safetensors
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_SAFETENSORS_INDEX_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_SAFETENSORS_INDEX_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/tensors/tensor_source.h"

namespace triptych::checkpoint {

// The index file in a checkpoint's directory.
inline constexpr const char* kIndexFile = "model.safetensors.index.json";

// The shard of each tensor, by the tensor's name. Shards are files in the directory of the index,
// at most kMaxShards of them, named without a path. `source` is the index's name for messages.
// Throws LoadError.
inline constexpr size_t kMaxShards = 1024;
std::map<std::string, std::string> ParseSafetensorsIndex(std::string_view json,
                                                         const std::string& source);

// The shards that an index file names, each once. Throws LoadError.
std::vector<std::filesystem::path> ShardFiles(const std::filesystem::path& index);

// The tensors that an index names. Other tensors of a shard are left out. A tensor that is missing,
// or in a shard that the index does not place it in, is refused. The constructor checks every
// shard. A shard is open only then and while a tensor of it is read: a file that has changed since
// gives wrong numbers or LoadError, and nothing worse.
class ShardedTensors final : public TensorSource {
 public:
  // Throws LoadError.
  explicit ShardedTensors(const std::filesystem::path& index);

  const std::string& name() const override { return name_; }
  std::vector<std::string> TensorNames() const override;
  const StoredTensor* Find(const std::string& tensor) const override;
  void ReadPart(const std::string& tensor, uint64_t begin,
                std::span<std::byte> bytes) const override;

 private:
  struct Placed : StoredTensor {
    std::filesystem::path shard;
    uint64_t offset = 0;  // in the shard
  };

  std::string name_;
  std::map<std::string, Placed> tensors_;
};

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_SAFETENSORS_INDEX_H_
