// Renamed, transposed, split and shifted tensors of another source.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_MAPPED_TENSORS_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_MAPPED_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/tensors/tensor_source.h"

namespace triptych::checkpoint {

// The origin of a tensor: another tensor, one of the matrices that a tensor joins, rows of one, or
// one plus 1.
struct TensorOrigin {
  std::string tensor;       // the origin's name
  bool transposed = false;  // a matrix, stored as [inputs, outputs]
  // Rows of the matrix [outputs, inputs], or elements of a vector; without `rows` all of them.
  int64_t first_row = 0;
  std::optional<int64_t> rows = {};
  // The number of rows that the origin must have, so that no more is read than the config needs.
  std::optional<int64_t> of_rows = {};
  // The tensor is the origin plus 1 in float32, of a whole origin that is F32, BF16 or F16.
  bool plus_one = false;
  // A matrix of an origin with three dimensions, by its place in the first one, and the number of
  // matrices that the origin must have.
  std::optional<int64_t> matrix = {};
  int64_t of_matrices = 0;
  bool as_row = false;  // a vector of n elements as a matrix [1, n]
};

// The tensors of `source`, some of them under other names. Published and GGUF checkpoints get the
// engine's names by it. Tensors that are neither mapped nor left out keep their names.
class MappedTensors final : public TensorSource {
 public:
  // `origins`: by new name. A tensor is absent if its origin is not in `source`, or lacks the rows.
  // `left_out`: names in `source` that are dropped. Throws LoadError if an origin has more or fewer
  // rows than `of_rows` or matrices than `of_matrices`, or `plus_one` and another dtype.
  MappedTensors(std::shared_ptr<const TensorSource> source,
                std::map<std::string, TensorOrigin> origins,
                const std::vector<std::string>& left_out = {});

  const std::string& name() const override { return source_->name(); }
  std::vector<std::string> TensorNames() const override;
  const StoredTensor* Find(const std::string& tensor) const override;
  std::string NameInFiles(const std::string& tensor) const override;
  // Reads no more than the rows of an origin. Holds the whole matrix twice if it is transposed.
  void ReadPart(const std::string& tensor, uint64_t begin,
                std::span<std::byte> bytes) const override;

 private:
  struct Mapped {
    TensorOrigin origin;
    StoredTensor matrix;  // as the origin stores it
    StoredTensor stored;
  };

  std::shared_ptr<const TensorSource> source_;
  std::map<std::string, Mapped> tensors_;
  std::map<std::string, std::string> names_;  // of all origins, also of missing ones
};

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_MAPPED_TENSORS_H_
