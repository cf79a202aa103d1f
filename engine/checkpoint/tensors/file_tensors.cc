#include "engine/checkpoint/tensors/file_tensors.h"

namespace triptych::checkpoint {

std::vector<std::string> FileTensors::TensorNames() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

const StoredTensor* FileTensors::Find(const std::string& tensor) const {
  const auto found = entries_.find(tensor);
  return found == entries_.end() ? nullptr : &found->second;
}

void FileTensors::ReadPart(const std::string& tensor, uint64_t begin,
                           std::span<std::byte> bytes) const {
  const Entry& entry = entries_.at(tensor);
  CheckPart(tensor, entry, begin, bytes.size());
  file_.ReadAt(entry.begin + begin, bytes);
}

}  // namespace triptych::checkpoint
