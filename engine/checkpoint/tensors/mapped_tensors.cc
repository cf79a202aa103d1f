#include "engine/checkpoint/tensors/mapped_tensors.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>

#include "engine/base/bfloat16.h"
#include "engine/base/error.h"
#include "engine/base/float16.h"
#include "engine/base/quoted.h"

namespace triptych::checkpoint {
namespace {

int64_t Elements(const std::vector<int64_t>& shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;  // for any other extents
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// The description of an origin's matrix: the whole of it, or one of those that it joins. None if
// there is no such matrix, or it is not of whole bytes.
std::optional<StoredTensor> MatrixOf(const StoredTensor& whole, const TensorOrigin& origin) {
  if (origin.as_row && whole.shape.size() == 1) {
    return StoredTensor{.dtype = whole.dtype, .shape = {1, whole.shape[0]}, .bytes = whole.bytes};
  }
  if (!origin.matrix) return whole;
  const auto count = whole.shape.empty() ? 0 : static_cast<uint64_t>(whole.shape[0]);
  if (whole.shape.size() != 3 || *origin.matrix < 0 || *origin.matrix >= whole.shape[0] ||
      whole.bytes % count != 0) {
    return std::nullopt;
  }
  return StoredTensor{.dtype = whole.dtype,
                      .shape = {whole.shape[1], whole.shape[2]},
                      .bytes = whole.bytes / count};
}

// The description of an origin's rows; none if there are no such rows, or they are not whole bytes.
std::optional<StoredTensor> RowsOf(const StoredTensor& whole, const TensorOrigin& origin) {
  StoredTensor part = whole;
  if (origin.plus_one) {
    part.dtype = "F32";
    part.bytes = static_cast<uint64_t>(Elements(whole.shape)) * sizeof(float);
    return part;
  }
  if (origin.transposed) {
    if (part.shape.size() != 2) return std::nullopt;
    std::swap(part.shape[0], part.shape[1]);
  }
  if (!origin.transposed && !origin.rows) return part;
  const auto elements = static_cast<uint64_t>(Elements(whole.shape));
  if (elements == 0 || (origin.transposed && whole.bytes % elements != 0)) return std::nullopt;
  if (!origin.rows) return part;
  if (part.shape.empty() || origin.first_row < 0 || *origin.rows < 1 ||
      *origin.rows > part.shape[0] - origin.first_row) {
    return std::nullopt;
  }
  const auto all_rows = static_cast<uint64_t>(part.shape[0]);
  if (whole.bytes % all_rows != 0) return std::nullopt;
  const uint64_t row_bytes = whole.bytes / all_rows;
  part.shape[0] = *origin.rows;
  part.bytes = row_bytes * static_cast<uint64_t>(*origin.rows);
  return part;
}

void CheckRows(const TensorSource& source, const TensorOrigin& origin, const StoredTensor& whole) {
  std::vector<int64_t> needed = whole.shape;
  const size_t matrix_axis = origin.matrix ? 1 : 0;
  const size_t rows_axis = matrix_axis + (origin.transposed ? 1 : 0);
  if (origin.matrix && !needed.empty()) needed[0] = origin.of_matrices;
  if (origin.of_rows && needed.size() > rows_axis) needed[rows_axis] = *origin.of_rows;
  if (needed == whole.shape) return;
  throw LoadError(source.name() + ": tensor " + source.NameInFiles(origin.tensor) + " has shape " +
                  Printable(ShapeText(whole.shape)) + "; the config needs " +
                  Printable(ShapeText(needed)));
}

// Throws LoadError unless an origin that needs it can be shifted.
void CheckShift(const TensorSource& source, const TensorOrigin& origin, const StoredTensor& whole) {
  if (!origin.plus_one || whole.dtype == "F32" || whole.dtype == "BF16" || whole.dtype == "F16") {
    return;
  }
  throw LoadError(source.name() + ": tensor " + source.NameInFiles(origin.tensor) + " has dtype " +
                  Printable(whole.dtype) + "; allowed: F32, BF16, F16");
}

// numbers: of a dtype that CheckShift allows -> sums: the same in float32, plus 1
void AddOne(std::span<const std::byte> numbers, const std::string& dtype,
            std::span<std::byte> sums) {
  const size_t size = dtype == "F32" ? sizeof(float) : sizeof(uint16_t);
  for (size_t i = 0; i < sums.size() / sizeof(float); ++i) {
    float number = 0;
    if (dtype == "F32") {
      std::memcpy(&number, numbers.data() + i * size, size);
    } else {
      uint16_t bits = 0;
      std::memcpy(&bits, numbers.data() + i * size, size);
      number = dtype == "BF16" ? FromBFloat16(bits) : FromFloat16(bits);
    }
    number += 1;
    std::memcpy(sums.data() + i * sizeof(float), &number, sizeof(float));
  }
}

// from: [rows, columns] -> to: [columns, rows], of elements of `size` bytes
void Transpose(std::span<const std::byte> from, int64_t rows, int64_t columns, size_t size,
               std::span<std::byte> to) {
  constexpr int64_t kTile = 64;  // its lines stay in the L1 cache
  for (int64_t top = 0; top < rows; top += kTile) {
    for (int64_t left = 0; left < columns; left += kTile) {
      for (int64_t i = top; i < std::min(top + kTile, rows); ++i) {
        for (int64_t j = left; j < std::min(left + kTile, columns); ++j) {
          std::copy_n(from.begin() + (i * columns + j) * static_cast<int64_t>(size), size,
                      to.begin() + (j * rows + i) * static_cast<int64_t>(size));
        }
      }
    }
  }
}

}  // namespace

MappedTensors::MappedTensors(std::shared_ptr<const TensorSource> source,
                             std::map<std::string, TensorOrigin> origins,
                             const std::vector<std::string>& left_out)
    : source_(std::move(source)) {
  std::set<std::string> gone(left_out.begin(), left_out.end());
  for (auto& [name, origin] : origins) {
    names_.emplace(name, origin.tensor);
    const StoredTensor* const whole = source_->Find(origin.tensor);
    if (whole == nullptr) continue;
    CheckRows(*source_, origin, *whole);
    CheckShift(*source_, origin, *whole);
    std::optional<StoredTensor> matrix = MatrixOf(*whole, origin);
    std::optional<StoredTensor> part = matrix ? RowsOf(*matrix, origin) : std::nullopt;
    if (!part) continue;
    gone.insert(origin.tensor);
    tensors_.insert_or_assign(name,
                              Mapped{std::move(origin), std::move(*matrix), std::move(*part)});
  }
  for (const std::string& name : source_->TensorNames()) {
    if (gone.contains(name)) continue;
    Mapped mapped;
    mapped.origin.tensor = name;
    mapped.stored = *source_->Find(name);
    mapped.matrix = mapped.stored;
    tensors_.emplace(name, std::move(mapped));
  }
}

std::vector<std::string> MappedTensors::TensorNames() const {
  std::vector<std::string> names;
  for (const auto& [name, mapped] : tensors_) names.push_back(name);
  return names;
}

const StoredTensor* MappedTensors::Find(const std::string& tensor) const {
  const auto found = tensors_.find(tensor);
  return found == tensors_.end() ? nullptr : &found->second.stored;
}

std::string MappedTensors::NameInFiles(const std::string& tensor) const {
  const auto found = names_.find(tensor);
  return source_->NameInFiles(found == names_.end() ? tensor : found->second);
}

void MappedTensors::ReadPart(const std::string& tensor, uint64_t begin,
                             std::span<std::byte> bytes) const {
  const auto& [origin, matrix, stored] = tensors_.at(tensor);
  CheckPart(tensor, stored, begin, bytes.size());
  const uint64_t before = matrix.bytes * static_cast<uint64_t>(origin.matrix.value_or(0));
  if (origin.rows) {
    const uint64_t row_bytes = stored.bytes / static_cast<uint64_t>(stored.shape[0]);
    begin += row_bytes * static_cast<uint64_t>(origin.first_row);
  }
  if (!origin.transposed && !origin.plus_one) {
    source_->ReadPart(origin.tensor, before + begin, bytes);
    return;
  }
  std::vector<std::byte> read(matrix.bytes), changed;
  source_->ReadPart(origin.tensor, before, read);
  if (origin.plus_one) {
    changed.resize(stored.bytes);
    AddOne(read, matrix.dtype, changed);
  } else {
    changed.resize(matrix.bytes);
    const auto element = static_cast<size_t>(matrix.bytes / Elements(matrix.shape));
    Transpose(read, matrix.shape[0], matrix.shape[1], element, changed);
  }
  std::copy_n(changed.begin() + static_cast<int64_t>(begin), bytes.size(), bytes.begin());
}

}  // namespace triptych::checkpoint
