// Interface of a checkpoint's tensors as bytes.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_TENSOR_SOURCE_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_TENSOR_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace triptych::checkpoint {

// Description of a stored tensor.
struct StoredTensor {
  std::string dtype;           // its name in safetensors ("F32", "BF16"), or that of a BlockFormat
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

// The stored bytes of a checkpoint's tensors, by name: below all conversion, and without LibTorch.
// (WeightSource, above it in engine/decoder/weights.h, gives tensors of LibTorch, part by part.)
// Immutable and thread-safe.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // The file or the index of the tensors, for messages.
  virtual const std::string& name() const = 0;
  // The name of every tensor, once.
  virtual std::vector<std::string> TensorNames() const = 0;
  // Null if there is no such tensor. The pointer is valid during the lifetime of this object.
  virtual const StoredTensor* Find(const std::string& tensor) const = 0;
  // A tensor's name in the files, for messages.
  virtual std::string NameInFiles(const std::string& tensor) const { return tensor; }
  // Fills `bytes` with the tensor's bytes from `begin` on: its elements, little-endian, row by row.
  // No more than them is read from a file, except where elements are decoded together. Throws
  // LoadError, and std::out_of_range if there is no such tensor or it ends before `bytes` do.
  virtual void ReadPart(const std::string& tensor, uint64_t begin,
                        std::span<std::byte> bytes) const = 0;

  // Fills `bytes` with all of the tensor. Throws LoadError, and std::out_of_range if there is no
  // such tensor or its size is not that of `bytes`.
  void Read(const std::string& tensor, std::span<std::byte> bytes) const {
    const StoredTensor* const stored = Find(tensor);
    if (stored == nullptr || bytes.size() != stored->bytes) {
      throw std::out_of_range(tensor + ": is missing or has another size");
    }
    ReadPart(tensor, 0, bytes);
  }

 protected:
  // Throws std::out_of_range unless a tensor has `size` bytes from `begin` on.
  static void CheckPart(const std::string& tensor, const StoredTensor& stored, uint64_t begin,
                        size_t size) {
    if (begin > stored.bytes || size > stored.bytes - begin) {
      throw std::out_of_range(tensor + ": ends before the bytes that are read");
    }
  }
};

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_TENSOR_SOURCE_H_
