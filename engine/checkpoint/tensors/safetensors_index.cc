#include "engine/checkpoint/tensors/safetensors_index.h"

#include <set>
#include <stdexcept>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/base/quoted.h"
#include "engine/checkpoint/config/json_fields.h"
#include "engine/checkpoint/tensors/safetensors.h"

namespace triptych::checkpoint {
namespace {

constexpr uint64_t kMaxIndexBytes = uint64_t{64} << 20;
constexpr size_t kMaxFileNameBytes = 255;

bool IsShardName(std::string_view name) {
  return name.size() <= kMaxFileNameBytes && name.ends_with(".safetensors") &&
         name.find_first_of(std::string_view("/\\\0", 3)) == name.npos &&
         name.find("..") == name.npos;
}

std::map<std::string, std::string> ReadIndex(const std::filesystem::path& index) {
  return ParseSafetensorsIndex(ReadText(index, kMaxIndexBytes), index.string());
}

std::set<std::string> ShardsOf(const std::map<std::string, std::string>& places) {
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : places) shards.insert(shard);
  return shards;
}

}  // namespace

std::map<std::string, std::string> ParseSafetensorsIndex(std::string_view json,
                                                         const std::string& source) {
  JsonFields fields(ParseJson(json, source), source);
  const Json map = fields.Take("weight_map", nullptr);
  if (!map.is_object()) {
    fields.RefuseValue("weight_map", map, "allowed: an object of files' names by tensors' names");
  }
  std::map<std::string, std::string> places;
  std::set<std::string_view> shards;
  for (const auto& [tensor, file] : map.items()) {
    if (!file.is_string() || !IsShardName(file.get_ref<const std::string&>())) {
      fields.RefuseValue("weight_map[" + Quoted(tensor) + "]", file,
                         "allowed: the name of a .safetensors file next to it, without a path");
    }
    shards.insert(file.get_ref<const std::string&>());
    if (shards.size() > kMaxShards) {
      fields.Refuse("weight_map", "of more than " + std::to_string(kMaxShards) + " files",
                    "allowed: at most " + std::to_string(kMaxShards));
    }
    places.emplace(tensor, file.get<std::string>());
  }
  if (places.empty()) fields.Refuse("weight_map", "{}", "allowed: at least one tensor");
  return places;
}

std::vector<std::filesystem::path> ShardFiles(const std::filesystem::path& index) {
  std::vector<std::filesystem::path> files;
  for (const std::string& shard : ShardsOf(ReadIndex(index))) {
    files.push_back(index.parent_path() / shard);
  }
  return files;
}

ShardedTensors::ShardedTensors(const std::filesystem::path& index) : name_(index.string()) {
  const std::map<std::string, std::string> places = ReadIndex(index);
  for (const std::string& shard : ShardsOf(places)) {
    const SafetensorsFile file(index.parent_path() / shard);
    for (const auto& [tensor, entry] : file.entries()) {
      const auto place = places.find(tensor);
      if (place == places.end()) continue;
      if (place->second != shard) {
        throw LoadError(file.name() + ": tensor " + Printable(tensor) + " is here too; " + name_ +
                        " places it in " + Printable(place->second));
      }
      Placed placed{entry, index.parent_path() / shard, file.data_begin() + entry.begin};
      tensors_.emplace(tensor, std::move(placed));
    }
  }
  for (const auto& [tensor, shard] : places) {
    if (tensors_.contains(tensor)) continue;
    throw LoadError((index.parent_path() / shard).string() + ": tensor " + Printable(tensor) +
                    " is missing, which " + name_ + " places here");
  }
}

std::vector<std::string> ShardedTensors::TensorNames() const {
  std::vector<std::string> names;
  for (const auto& [name, placed] : tensors_) names.push_back(name);
  return names;
}

const StoredTensor* ShardedTensors::Find(const std::string& tensor) const {
  const auto found = tensors_.find(tensor);
  return found == tensors_.end() ? nullptr : &found->second;
}

void ShardedTensors::ReadPart(const std::string& tensor, uint64_t begin,
                              std::span<std::byte> bytes) const {
  const Placed& placed = tensors_.at(tensor);
  CheckPart(tensor, placed, begin, bytes.size());
  InputFile(placed.shard).ReadAt(placed.offset + begin, bytes);
}

}  // namespace triptych::checkpoint
