#include "engine/checkpoint/open_checkpoint.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/keyed_hash.h"
#include "engine/checkpoint/config/config_file.h"
#include "engine/checkpoint/gguf_model.h"
#include "engine/checkpoint/tensors/mapped_tensors.h"
#include "engine/checkpoint/tensors/open_tensors.h"
#include "engine/checkpoint/tensors/quantized_matrices.h"
#include "engine/checkpoint/tensors/safetensors_index.h"

namespace triptych::checkpoint {

namespace {

// Names of the engine, and of published models with a head.
constexpr const char* kEmbeddingTensor = "model.embed_tokens.weight";
constexpr const char* kHeadTensor = "lm_head.weight";

uint64_t DigestOf(const TensorSource& tensors, const std::string& name, std::string& buffer) {
  buffer.resize(tensors.Find(name)->bytes);
  tensors.Read(name, std::as_writable_bytes(std::span(buffer)));
  return KeyedHash()(std::string_view(buffer));
}

// Whether published tensors that are tied hold an output matrix that is not the embedding. One of
// the two is in memory at a time.
bool HasOwnHead(const TensorSource& published, const TensorMap& map) {
  const auto origin = map.origins.find(kEmbeddingTensor);
  const std::string embedding =
      origin == map.origins.end() ? kEmbeddingTensor : origin->second.tensor;
  const StoredTensor* const head = published.Find(kHeadTensor);
  const StoredTensor* const shared = published.Find(embedding);
  // A matrix of another shape cannot be the model's.
  if (head == nullptr || shared == nullptr || head->shape != shared->shape) return false;
  if (head->dtype != shared->dtype) return true;
  std::string buffer;
  const uint64_t digest = DigestOf(published, kHeadTensor, buffer);
  return digest != DigestOf(published, embedding, buffer);
}

// Whether a directory has every file of its tensors.
bool HasTensors(const std::filesystem::path& directory) {
  if (!Exists(directory / kWeightsFile) && !Exists(directory / kIndexFile)) return false;
  const std::vector<std::filesystem::path> files = TensorFiles(directory);
  return std::all_of(files.begin(), files.end(), [](const auto& file) { return Exists(file); });
}

}  // namespace

bool MayBeCheckpoint(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ||
         (IsGgufFile(path) && std::filesystem::exists(path, ignored));
}

OpenedCheckpoint OpenCheckpoint(const std::filesystem::path& checkpoint) {
  if (IsGgufFile(checkpoint)) {
    auto file = std::make_shared<const GgufFile>(checkpoint);
    PublishedConfig published = ReadGgufConfig(*file);
    std::shared_ptr<const TensorSource> tensors = MapGgufTensors(file, published.config);
    return {.path = checkpoint,
            .config = std::move(published.config),
            .tensors = std::move(tensors),
            .gguf = std::move(file),
            .context_origin = std::move(published.context_origin)};
  }
  PublishedConfig published = ReadPublishedConfig(checkpoint / kConfigFile);
  std::shared_ptr<const TensorSource> tensors = OpenTensors(checkpoint);
  if (published.quantization) {
    if (published.config.experts.n_routed_experts > 0) {
      published.config.served_formats =
          NearestFormats(*tensors, *published.quantization, published.config);
    }
    tensors = DecodeMatrices(std::move(tensors), *published.quantization, published.config);
  }
  TensorMap map = published.family->tensors(published.config, *tensors);
  OpenedCheckpoint opened{.path = checkpoint,
                          .config = std::move(published.config),
                          .tensors = nullptr,
                          .context_origin = std::move(published.context_origin)};
  if (opened.config.tie_word_embeddings && HasOwnHead(*tensors, map)) {
    opened.config.tie_word_embeddings = false;
    map = published.family->tensors(opened.config, *tensors);
    opened.warnings.push_back(std::string(kHeadTensor) +
                              " differs from the embedding in dtype or values, and is the output "
                              "matrix, although tie_word_embeddings is true");
  }
  opened.warnings.insert(opened.warnings.end(), map.notes.begin(), map.notes.end());
  opened.tensors = std::make_shared<const MappedTensors>(std::move(tensors), std::move(map.origins),
                                                         map.left_out);
  return opened;
}

ModelConfig ReadConfig(const std::filesystem::path& checkpoint) {
  if (IsGgufFile(checkpoint)) return ReadGgufConfig(GgufFile(checkpoint)).config;
  PublishedConfig published = ReadPublishedConfig(checkpoint / kConfigFile);
  const bool has_quantized_experts =
      published.quantization && published.config.experts.n_routed_experts > 0;
  if ((published.config.tie_word_embeddings || has_quantized_experts) && HasTensors(checkpoint)) {
    return OpenCheckpoint(checkpoint).config;
  }
  return std::move(published.config);
}

std::vector<std::filesystem::path> CheckpointFiles(const std::filesystem::path& checkpoint) {
  if (IsGgufFile(checkpoint)) return GgufFile(checkpoint).files();
  std::vector<std::filesystem::path> files = TensorFiles(checkpoint);
  files.insert(files.begin(), checkpoint / kConfigFile);
  return files;
}

}  // namespace triptych::checkpoint
