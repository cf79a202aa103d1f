#include "engine/checkpoint/tensors/decoded_tensors.h"

#include <algorithm>
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

void DecodedTensors::ReadPart(const std::string& tensor, uint64_t begin,
                              std::span<std::byte> bytes) const {
  const StoredTensor& stored = tensors_.at(tensor);
  CheckPart(tensor, stored, begin, bytes.size());
  const auto found = origins_.find(tensor);
  if (found == origins_.end()) {
    source_->ReadPart(tensor, begin, bytes);
    return;
  }
  // Callers' buffers are those of tensors, but nothing aligns a span of bytes.
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(float) != 0) {
    throw std::invalid_argument(tensor + ": is read to memory that is not aligned for floats");
  }
  if (begin % sizeof(float) != 0 || bytes.size() % sizeof(float) != 0) {
    throw std::invalid_argument(tensor + ": is read in part, but not in whole numbers");
  }
  const DecodedOrigin& origin = found->second;
  const std::span<float> numbers(reinterpret_cast<float*>(bytes.data()),
                                 bytes.size() / sizeof(float));
  const uint64_t first = begin / sizeof(float), all = stored.bytes / sizeof(float);
  const uint64_t unit = origin.unit > 0 ? static_cast<uint64_t>(origin.unit) : all;
  if (numbers.empty()) return;
  const uint64_t from = first / unit * unit;
  const uint64_t to = (first + numbers.size() + unit - 1) / unit * unit;
  if (from == first && to == first + numbers.size()) {
    origin.decode(*source_, first, numbers);
    return;
  }
  std::vector<float> units(to - from);
  origin.decode(*source_, from, units);
  std::copy_n(units.begin() + static_cast<int64_t>(first - from), numbers.size(), numbers.begin());
}

std::shared_ptr<const TensorSource> DecodeBlockTensors(std::shared_ptr<const TensorSource> source) {
  std::map<std::string, DecodedOrigin> origins;
  for (const std::string& name : source->TensorNames()) {
    const StoredTensor& stored = *source->Find(name);
    const BlockFormat* const format = FindBlockFormat(stored.dtype);
    if (format == nullptr) continue;
    origins[name] = {.tensor = name,
                     .shape = stored.shape,
                     .unit = format->numbers,
                     .decode = [format, name](const TensorSource& blocks_of, uint64_t first,
                                              std::span<float> numbers) {
                       const auto of_numbers = static_cast<uint64_t>(format->numbers);
                       const auto of_bytes = static_cast<uint64_t>(format->bytes);
                       std::vector<std::byte> blocks(numbers.size() / of_numbers * of_bytes);
                       blocks_of.ReadPart(name, first / of_numbers * of_bytes, blocks);
                       DecodeBlocks(*format, blocks, numbers);
                     }};
  }
  return std::make_shared<const DecodedTensors>(std::move(source), std::move(origins),
                                                std::set<std::string>{});
}

}  // namespace triptych::checkpoint
