// Model in GGUF: metadata by keys, then tensors, in one file or several.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_GGUF_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_GGUF_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/checkpoint/gguf_header.h"
#include "engine/checkpoint/tensors/tensor_source.h"

namespace triptych::checkpoint {

// Whether a path names a GGUF file: it ends in ".gguf", and is no directory.
bool IsGgufFile(const std::filesystem::path& path);

// The maximum number of a model's files. Each stays open.
inline constexpr int64_t kMaxGgufShards = 256;

// A model of one file, or of the files NAME-00001-of-0000N.gguf to NAME-0000N-of-0000N.gguf
// (shards), each with its own tensors. The metadata are the first one's. The constructor checks
// every header. Shapes are as in safetensors: elements along the last dimension are adjacent. A
// file that has changed since gives wrong numbers or LoadError, and nothing worse.
class GgufFile final : public TensorSource {
 public:
  // `path`: the file, or any shard. Refuses what ReadGgufHeader refuses, and a shard that is
  // missing or of another model. Throws LoadError.
  explicit GgufFile(const std::filesystem::path& path);

  const Json& metadata() const { return metadata_; }
  // All of the model's files.
  std::vector<std::filesystem::path> files() const;

  const std::string& name() const override { return files_.front()->name(); }
  std::vector<std::string> TensorNames() const override;
  const StoredTensor* Find(const std::string& tensor) const override;
  void ReadPart(const std::string& tensor, uint64_t begin,
                std::span<std::byte> bytes) const override;

 private:
  struct Placed : GgufTensor {
    size_t file = 0;  // of files_
  };

  // Adds a file with its tensors.
  void Add(std::unique_ptr<const InputFile> file, std::map<std::string, GgufTensor> tensors);

  std::vector<std::unique_ptr<const InputFile>> files_;
  Json metadata_;
  std::map<std::string, Placed> tensors_;
};

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_GGUF_H_
