// Where the tensors of a checkpoint come from. Torch-free.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_TENSOR_SOURCE_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_TENSOR_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace triptych::checkpoint {

// What is stored under a name.
struct StoredTensor {
  std::string dtype;           // by its name in safetensors: "F32", "BF16", "F16", ...; "Q8_0"
  std::vector<int64_t> shape;  // each at least 0
  uint64_t bytes = 0;          // of all elements
};

// "[2, 3]", for messages.
inline std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  text += ']';
  return text;
}

// The tensors of one checkpoint by their names, whatever files they are in. Immutable and
// thread-safe.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // The file that holds them, or the directory, for messages.
  virtual const std::string& name() const = 0;
  // Every tensor's name, each once.
  virtual std::vector<std::string> TensorNames() const = 0;
  // Null if there is no such tensor. Valid as long as this object.
  virtual const StoredTensor* Find(const std::string& tensor) const = 0;
  // What a tensor is called in the files, for messages.
  virtual std::string NameInFiles(const std::string& tensor) const { return tensor; }
  // Fills `bytes`, as many as Find says, with the tensor's elements: little-endian, row by row.
  // Throws LoadError, and std::out_of_range if there is no such tensor or it has another size.
  virtual void Read(const std::string& tensor, std::span<std::byte> bytes) const = 0;
};

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_TENSOR_SOURCE_H_
