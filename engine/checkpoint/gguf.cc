#include "engine/checkpoint/gguf.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/quoted.h"

namespace triptych::checkpoint {
namespace {

constexpr const char* kShardNumber = "split.no";
constexpr const char* kShardCount = "split.count";
constexpr const char* kTensorCount = "split.tensors.count";

// The end of the name of shard `index` of `count`.
std::string ShardEnding(int64_t index, int64_t count) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "-%05lld-of-%05lld.gguf",
                static_cast<long long>(index + 1), static_cast<long long>(count));
  return text.data();
}

// A key's integer, at least 0; absent without the key. Throws LoadError.
std::optional<int64_t> CountOf(const Json& metadata, const std::string& file, const char* key,
                               int64_t most) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  const bool integer = found->is_number_integer() &&
                       (found->is_number_unsigned() || found->get<int64_t>() >= 0) &&
                       found->get<uint64_t>() <= static_cast<uint64_t>(most);
  if (!integer) {
    throw LoadError(file + ": " + key + " is " + ShownJson(*found) +
                    "; allowed: an integer from 0 to " + std::to_string(most));
  }
  return found->get<int64_t>();
}

// Throws LoadError unless a shard's key has this value.
void CheckKey(const GgufHeader& header, const std::string& file, const char* key, int64_t value) {
  const auto found = header.metadata.find(key);
  if (found != header.metadata.end() && found->is_number_integer() && *found == value) return;
  throw LoadError(file + ": " + key + " is " +
                  (found == header.metadata.end() ? "missing" : ShownJson(*found)) +
                  "; expected: " + std::to_string(value));
}

// The paths of all shards, from that of any. Throws LoadError unless its name ends as a shard's.
std::vector<std::filesystem::path> ShardsBeside(const std::filesystem::path& path, int64_t count) {
  const std::string name = path.filename().string();
  for (int64_t index = 0; index < count; ++index) {
    const std::string ending = ShardEnding(index, count);
    if (!std::string_view(name).ends_with(ending)) continue;
    const std::string stem = name.substr(0, name.size() - ending.size());
    std::vector<std::filesystem::path> shards;
    for (int64_t i = 0; i < count; ++i) {
      shards.push_back(path.parent_path() / (stem + ShardEnding(i, count)));
    }
    return shards;
  }
  throw LoadError(path.string() + ": " + kShardCount + " is " + std::to_string(count) +
                  "; expected: a file name that ends in " + ShardEnding(0, count) + " to " +
                  ShardEnding(count - 1, count));
}

}  // namespace

bool IsGgufFile(const std::filesystem::path& path) {
  std::error_code ignored;
  return path.extension() == ".gguf" && !std::filesystem::is_directory(path, ignored);
}

GgufFile::GgufFile(const std::filesystem::path& path) {
  auto named = std::make_unique<const InputFile>(path);
  GgufHeader header = ReadGgufHeader(*named);
  const int64_t count =
      CountOf(header.metadata, named->name(), kShardCount, kMaxGgufShards).value_or(1);
  if (count <= 1) {
    metadata_ = std::move(header.metadata);
    Add(std::move(named), std::move(header.tensors));
    return;
  }
  const std::vector<std::filesystem::path> shards = ShardsBeside(path, count);
  const std::optional<int64_t> tensors =
      CountOf(header.metadata, named->name(), kTensorCount, kMaxGgufTensors);
  for (int64_t i = 0; i < count; ++i) {
    const std::string shard = shards[i].string();
    if (!Exists(shards[i])) {
      throw LoadError(shard + ": is missing; " + named->name() + " is one of " +
                      std::to_string(count) + " files of a model");
    }
    auto file = std::make_unique<const InputFile>(shards[i]);
    GgufHeader own = ReadGgufHeader(*file);
    CheckKey(own, shard, kShardNumber, i);
    CheckKey(own, shard, kShardCount, count);
    if (tensors) CheckKey(own, shard, kTensorCount, *tensors);
    if (i == 0) metadata_ = std::move(own.metadata);
    Add(std::move(file), std::move(own.tensors));
    if (tensors_.size() > kMaxGgufTensors) {
      throw LoadError(name() + ": has more than " + std::to_string(kMaxGgufTensors) +
                      " tensors with the files before " + shard);
    }
  }
  if (tensors && std::ssize(tensors_) != *tensors) {
    throw LoadError(name() + ": " + kTensorCount + " is " + std::to_string(*tensors) + "; its " +
                    std::to_string(count) + " files hold " + std::to_string(tensors_.size()));
  }
}

void GgufFile::Add(std::unique_ptr<const InputFile> file,
                   std::map<std::string, GgufTensor> tensors) {
  for (auto& [name, tensor] : tensors) {
    const auto [place, added] = tensors_.emplace(name, Placed{std::move(tensor), files_.size()});
    if (!added) {
      throw LoadError(file->name() + ": tensor " + Printable(name) + " is in " +
                      files_[place->second.file]->name() + " too");
    }
  }
  files_.push_back(std::move(file));
}

std::vector<std::filesystem::path> GgufFile::files() const {
  std::vector<std::filesystem::path> paths;
  for (const auto& file : files_) paths.emplace_back(file->name());
  return paths;
}

std::vector<std::string> GgufFile::TensorNames() const {
  std::vector<std::string> names;
  for (const auto& [name, placed] : tensors_) names.push_back(name);
  return names;
}

const StoredTensor* GgufFile::Find(const std::string& tensor) const {
  const auto found = tensors_.find(tensor);
  return found == tensors_.end() ? nullptr : &found->second;
}

void GgufFile::ReadPart(const std::string& tensor, uint64_t begin,
                        std::span<std::byte> bytes) const {
  const Placed& placed = tensors_.at(tensor);
  CheckPart(tensor, placed, begin, bytes.size());
  files_[placed.file]->ReadAt(placed.begin + begin, bytes);
}

}  // namespace triptych::checkpoint
