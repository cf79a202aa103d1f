// A checkpoint's tensors under other names. Torch-free.
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

// Where a tensor comes from: some rows of another.
struct TensorOrigin {
  std::string tensor;       // its name there
  bool transposed = false;  // a matrix, stored as [inputs, outputs]
  // Of the matrix [outputs, inputs], or the elements of a vector; all of them if `rows` is absent.
  int64_t first_row = 0;
  std::optional<int64_t> rows = {};
  // How many the whole must have, so that no more is read than the config asks for.
  std::optional<int64_t> of_rows = {};
};

// Names that are not mapped are those of `source`, but for what is mapped from or left out.
class MappedTensors final : public TensorSource {
 public:
  // `origins`: by the new names; those whose origin is not in `source`, or lacks the rows, are not
  // there. `left_out`: names in `source` that nobody needs. Throws LoadError where an origin has
  // more or fewer rows than it must have.
  MappedTensors(std::shared_ptr<const TensorSource> source,
                std::map<std::string, TensorOrigin> origins,
                const std::vector<std::string>& left_out = {});

  const std::string& name() const override { return source_->name(); }
  std::vector<std::string> TensorNames() const override;
  const StoredTensor* Find(const std::string& tensor) const override;
  std::string NameInFiles(const std::string& tensor) const override;
  // Holds the whole origin meanwhile, twice if it is transposed, where that is not asked for as it
  // is.
  void Read(const std::string& tensor, std::span<std::byte> bytes) const override;

 private:
  struct Mapped {
    TensorOrigin origin;
    StoredTensor stored;
  };

  std::shared_ptr<const TensorSource> source_;
  std::map<std::string, Mapped> tensors_;
  std::map<std::string, std::string> names_;  // of all origins, those that are missing, too
};

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TENSORS_MAPPED_TENSORS_H_
