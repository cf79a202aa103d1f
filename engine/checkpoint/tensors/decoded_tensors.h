// Tensors of numbers, decoded from the integers or narrow floats of another source.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_DECODED_TENSORS_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_DECODED_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/tensors/tensor_source.h"

namespace triptych::checkpoint {

// Origin of a decoded tensor.
struct DecodedOrigin {
  std::string tensor;  // the name of its integers in the source, for messages
  std::vector<int64_t> shape;
  int64_t unit = 0;  // elements that are decoded together, which divide a row; 0: all elements
  // Fills `numbers` with the elements from `first` on, row by row: whole units. Throws LoadError.
  std::function<void(const TensorSource& source, uint64_t first, std::span<float> numbers)> decode;
};

// The tensors of a source, some of them as F32. Decoding holds what is stored of the numbers
// besides them.
class DecodedTensors final : public TensorSource {
 public:
  // `origins`: by the name of the decoded tensor; `left_out`: other names in `source` that are
  // dropped. Throws LoadError if a decoded tensor's name is that of another tensor, or its size
  // overflows.
  DecodedTensors(std::shared_ptr<const TensorSource> source,
                 std::map<std::string, DecodedOrigin> origins,
                 const std::set<std::string>& left_out);

  const std::string& name() const override { return source_->name(); }
  std::vector<std::string> TensorNames() const override;
  const StoredTensor* Find(const std::string& tensor) const override;
  std::string NameInFiles(const std::string& tensor) const override;
  void ReadPart(const std::string& tensor, uint64_t begin,
                std::span<std::byte> bytes) const override;

 private:
  std::shared_ptr<const TensorSource> source_;
  std::map<std::string, DecodedOrigin> origins_;
  std::map<std::string, StoredTensor> tensors_;
};

// All tensors of `source`, those in BlockFormats() decoded.
std::shared_ptr<const TensorSource> DecodeBlockTensors(std::shared_ptr<const TensorSource> source);

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_DECODED_TENSORS_H_
