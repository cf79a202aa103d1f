#include "engine/checkpoint/tensors/decoded_tensors.h"

#include <stdexcept>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/quoted.h"
#include "engine/checkpoint/tensors/block_formats.h"

namespace triptych::checkpoint {
namespace {

StoredTensor Floats(const std::string& source, const std::string& name,
                    const std::vector<int64_t>& shape) {
  StoredTensor stored{.dtype = "F32", .shape = shape, .bytes = sizeof(float)};
  for (const int64_t extent : shape) {
    if (!__builtin_mul_overflow(stored.bytes, static_cast<uint64_t>(extent), &stored.bytes)) {
      continue;
    }
    throw LoadError(source + ": tensor " + Printable(name) + " has shape " +
                    Printable(ShapeText(shape)) + ", whose size overflows");
  }
  return stored;
}

}  // namespace

DecodedTensors::DecodedTensors(std::shared_ptr<const TensorSource> source,
                               std::map<std::string, DecodedOrigin> origins,
                               const std::set<std::string>& left_out)
    : source_(std::move(source)), origins_(std::move(origins)) {
  for (const std::string& name : source_->TensorNames()) {
    if (!left_out.contains(name)) tensors_.emplace(name, *source_->Find(name));
  }
  for (const auto& [name, origin] : origins_) {
    if (origin.tensor == name) tensors_.erase(name);
    if (!tensors_.emplace(name, Floats(source_->name(), name, origin.shape)).second) {
      throw LoadError(source_->name() + ": tensor " + Printable(name) + " is there, and " +
                      Printable(origin.tensor) + " too; allowed: one of them");
    }
  }
}

std::vector<std::string> DecodedTensors::TensorNames() const {
  std::vector<std::string> names;
  for (const auto& [name, stored] : tensors_) names.push_back(name);
  return names;
}

const StoredTensor* DecodedTensors::Find(const std::string& tensor) const {
  const auto found = tensors_.find(tensor);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::string DecodedTensors::NameInFiles(const std::string& tensor) const {
  const auto found = origins_.find(tensor);
  return source_->NameInFiles(found == origins_.end() ? tensor : found->second.tensor);
}

void DecodedTensors::Read(const std::string& tensor, std::span<std::byte> bytes) const {
  if (bytes.size() != tensors_.at(tensor).bytes) {
    throw std::out_of_range(tensor + ": has another size");
  }
  const auto found = origins_.find(tensor);
  if (found == origins_.end()) {
    source_->Read(tensor, bytes);
    return;
  }
  // Callers' buffers are those of tensors, but nothing aligns a span of bytes.
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(float) != 0) {
    throw std::invalid_argument(tensor + ": is read to memory that is not aligned for floats");
  }
  found->second.decode(*source_,
                       {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)});
}

std::shared_ptr<const TensorSource> DecodeBlockTensors(std::shared_ptr<const TensorSource> source) {
  std::map<std::string, DecodedOrigin> origins;
  for (const std::string& name : source->TensorNames()) {
    const StoredTensor& stored = *source->Find(name);
    const BlockFormat* const format = FindBlockFormat(stored.dtype);
    if (format == nullptr) continue;
    origins[name] = {.tensor = name,
                     .shape = stored.shape,
                     .decode = [format, name, bytes = stored.bytes](const TensorSource& blocks_of,
                                                                    std::span<float> numbers) {
                       std::vector<std::byte> blocks(bytes);
                       blocks_of.Read(name, blocks);
                       DecodeBlocks(*format, blocks, numbers);
                     }};
  }
  return std::make_shared<const DecodedTensors>(std::move(source), std::move(origins),
                                                std::set<std::string>{});
}

}  // namespace triptych::checkpoint
