#include "engine/checkpoint/tensors/file_tensors.h"

#include <stdexcept>

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

void FileTensors::Read(const std::string& tensor, std::span<std::byte> bytes) const {
  const Entry& entry = entries_.at(tensor);
  if (bytes.size() != entry.bytes) throw std::out_of_range(tensor + ": has another size");
  file_.ReadAt(entry.begin, bytes);
}

}  // namespace triptych::checkpoint
