// Fuzz target: a safetensors file.
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/base/error.h"
#include "engine/checkpoint/tensors/safetensors.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/targets.h"

namespace triptych {
namespace {

// Bytes of a tensor as a double: infinity instead of overflow; exact for small files.
double BytesOf(const checkpoint::StoredTensor& tensor) {
  const size_t digit = tensor.dtype.find_first_of("0123456789");
  double bytes =
      digit == std::string::npos ? 1 : std::stod(tensor.dtype.substr(digit)) / 8;  // BOOL
  for (const int64_t extent : tensor.shape) {
    Promise(extent >= 0, "a shape is not negative");
    bytes *= static_cast<double>(extent);
  }
  return bytes;
}

}  // namespace

void FuzzSafetensors(std::string_view bytes) {
  const MemoryFile file(bytes);
  std::unique_ptr<const checkpoint::SafetensorsFile> opened;
  try {
    opened = std::make_unique<const checkpoint::SafetensorsFile>(file.path());
  } catch (const LoadError& e) {
    PromiseClearLine(e.what(), 1000);
    return;
  }
  const checkpoint::TensorSource& source = *opened;
  // The tensors fill the rest of the file without gaps.
  uint64_t total = 0;
  for (const std::string& name : source.TensorNames()) {
    const checkpoint::StoredTensor* const stored = source.Find(name);
    Promise(stored != nullptr, "a tensor that is listed is found");
    Promise(stored->bytes <= bytes.size() - total, "tensors lie in the file and do not overlap");
    Promise(BytesOf(*stored) == static_cast<double>(stored->bytes), "a shape tells the bytes");
    total += stored->bytes;
  }
  const std::string_view section = bytes.substr(bytes.size() - total);
  for (const auto& [name, entry] : opened->entries()) {
    std::string data(entry.bytes, '\0');
    source.Read(name, std::as_writable_bytes(std::span(data)));
    Promise(data == section.substr(entry.begin, entry.bytes), "a tensor is read as it is stored");
  }
}

}  // namespace triptych
