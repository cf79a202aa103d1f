#include "engine/checkpoint/gguf_header.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/quoted.h"
#include "engine/base/utf8.h"
#include "engine/checkpoint/tensors/block_formats.h"

namespace triptych::checkpoint {
namespace {

constexpr uint64_t kMaxHeaderBytes = uint64_t{64} << 20;
constexpr uint64_t kMaxValues = uint64_t{1} << 21;
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxNameBytes = 64;
constexpr uint32_t kMaxDims = 4;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;

// Types of metadata, by their numbers in a file.
enum class ValueType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

// The least size of a value, in bytes.
uint64_t LeastBytes(ValueType type) {
  switch (type) {
    case ValueType::kUint8:
    case ValueType::kInt8:
    case ValueType::kBool:
      return 1;
    case ValueType::kUint16:
    case ValueType::kInt16:
      return 2;
    case ValueType::kUint32:
    case ValueType::kInt32:
    case ValueType::kFloat32:
      return 4;
    case ValueType::kString:
    case ValueType::kArray:
    case ValueType::kUint64:
    case ValueType::kInt64:
    case ValueType::kFloat64:
      return 8;
  }
  return 1;
}

struct TensorType {
  const char* name;
  uint32_t type;     // its number in files
  uint64_t numbers;  // in a block
  uint64_t bytes;    // in a block
};

constexpr TensorType kNumberTypes[] = {{"F32", 0, 1, 4}, {"F16", 1, 1, 2}, {"BF16", 30, 1, 2}};

// The type with this number in files; none if it is not supported.
std::optional<TensorType> SupportedType(uint32_t type) {
  for (const TensorType& known : kNumberTypes) {
    if (known.type == type) return known;
  }
  for (const BlockFormat& known : BlockFormats()) {
    if (known.type == type) {
      return TensorType{known.name, type, static_cast<uint64_t>(known.numbers),
                        static_cast<uint64_t>(known.bytes)};
    }
  }
  return std::nullopt;
}

std::string SupportedTypes() {
  std::string names;
  for (const TensorType& known : kNumberTypes) {
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  for (const BlockFormat& known : BlockFormats()) names += ", " + std::string(known.name);
  return names;
}

std::string NameOfType(uint32_t type) {
  static constexpr std::array<const char*, 43> kNames = {
      "F32",     "F16",   "Q4_0",   "Q4_1",  nullptr, nullptr,  "Q5_0",  "Q5_1",    "Q8_0",
      "Q8_1",    "Q2_K",  "Q3_K",   "Q4_K",  "Q5_K",  "Q6_K",   "Q8_K",  "IQ2_XXS", "IQ2_XS",
      "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8",    "I16",     "I32",
      "I64",     "F64",   "IQ1_M",  "BF16",  nullptr, nullptr,  nullptr, "TQ1_0",   "TQ2_0",
      nullptr,   nullptr, nullptr,  "MXFP4", "NVFP4", "Q1_0",   "Q2_0"};
  if (type < kNames.size() && kNames[type] != nullptr) return kNames[type];
  return "number " + std::to_string(type);
}

// The number as people write it: 1e-05, not 9.99999974737875e-06.
double ShortestDecimal(float value) {
  if (!std::isfinite(value)) return value;
  std::array<char, 32> text;
  const char* const end = std::to_chars(text.begin(), text.end(), value).ptr;
  double shortest = value;
  std::from_chars(text.begin(), end, shortest);
  return shortest;
}

uint64_t RoundUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

// Reads a file's header from its beginning. Every function throws LoadError.
class HeaderReader {
 public:
  explicit HeaderReader(const InputFile& file) : file_(file) {}

  uint64_t offset() const { return offset_; }

  [[noreturn]] void Refuse(const std::string& why) const {
    throw LoadError(file_.name() + ": " + why);
  }

  // Throws unless the rest of the file has room for `count` values of at least `least_bytes` each.
  void Expect(uint64_t count, uint64_t least_bytes, const std::string& what) {
    if (count > (file_.size() - offset_) / least_bytes) {
      Refuse(what + " of " + std::to_string(count) + " values is longer than the file");
    }
    if (count > kMaxValues - values_) {
      Refuse("its header has more than " + std::to_string(kMaxValues) + " values");
    }
    values_ += count;
  }

  // Files and supported machines are little-endian.
  template <typename T>
  T Number() {
    T value;
    Fill(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }

  std::string Text(uint64_t max_bytes, const std::string& what) {
    const auto size = Number<uint64_t>();
    if (size > max_bytes || size > file_.size() - offset_) {
      Refuse(what + " is " + std::to_string(size) + " bytes long; allowed: at most " +
             std::to_string(max_bytes) + ", and no more than the file holds");
    }
    std::string text(size, '\0');
    Fill(std::as_writable_bytes(std::span(text)));
    return text;
  }

 private:
  void Fill(std::span<std::byte> bytes) {
    constexpr uint64_t kWindowBytes = 1 << 16;
    if (bytes.size() > file_.size() - offset_) Refuse("ends inside its header");
    if (offset_ + bytes.size() > kMaxHeaderBytes) {
      Refuse("its header is longer than " + std::to_string(kMaxHeaderBytes) + " bytes");
    }
    while (!bytes.empty()) {
      if (offset_ >= begin_ + window_.size()) {
        begin_ = offset_;
        window_.resize(std::min(kWindowBytes, file_.size() - begin_));
        file_.ReadAt(begin_, window_);
      }
      const std::span<const std::byte> there = std::span(window_).subspan(offset_ - begin_);
      const size_t count = std::min(there.size(), bytes.size());
      std::copy_n(there.begin(), count, bytes.begin());
      bytes = bytes.subspan(count);
      offset_ += count;
    }
  }

  const InputFile& file_;
  uint64_t offset_ = 0;
  uint64_t begin_ = 0;  // of the window
  std::vector<std::byte> window_;
  uint64_t values_ = 0;
};

// A value that is not a list.
Json ReadValue(HeaderReader& reader, ValueType type, const std::string& what) {
  switch (type) {
    case ValueType::kUint8:
      return reader.Number<uint8_t>();
    case ValueType::kInt8:
      return reader.Number<int8_t>();
    case ValueType::kUint16:
      return reader.Number<uint16_t>();
    case ValueType::kInt16:
      return reader.Number<int16_t>();
    case ValueType::kUint32:
      return reader.Number<uint32_t>();
    case ValueType::kInt32:
      return reader.Number<int32_t>();
    case ValueType::kFloat32:
      return ShortestDecimal(reader.Number<float>());
    case ValueType::kBool: {
      const auto byte = reader.Number<uint8_t>();
      if (byte > 1) {
        reader.Refuse(what + " is " + std::to_string(byte) + "; allowed: 0 and 1, for a bool");
      }
      return byte == 1;
    }
    case ValueType::kString: {
      std::string text = reader.Text(kMaxHeaderBytes, what);
      if (FindInvalidUtf8(text)) reader.Refuse(what + " is " + Quoted(text) + "; allowed: UTF-8");
      return text;
    }
    case ValueType::kUint64:
      return reader.Number<uint64_t>();
    case ValueType::kInt64:
      return reader.Number<int64_t>();
    case ValueType::kFloat64:
      return reader.Number<double>();
    case ValueType::kArray:
      break;
  }
  reader.Refuse(what + " is of type " + std::to_string(static_cast<uint32_t>(type)) +
                "; allowed: 0 to 12, and no lists in a list");
}

Json ReadMetadata(HeaderReader& reader, uint64_t count) {
  // A key's length, its value's type and that value.
  reader.Expect(count, 8 + 4 + 1, "metadata");
  Json metadata = Json::object();
  for (uint64_t i = 0; i < count; ++i) {
    std::string key = reader.Text(kMaxKeyBytes, "key " + std::to_string(i) + " of its metadata");
    const std::string shown = Printable(key);
    if (key.empty() || FindInvalidUtf8(key)) {
      reader.Refuse("key " + std::to_string(i) + " of its metadata is " + Quoted(key) +
                    "; allowed: UTF-8");
    }
    Json value;
    auto type = reader.Number<ValueType>();
    if (type == ValueType::kArray) {
      type = reader.Number<ValueType>();
      const auto elements = reader.Number<uint64_t>();
      reader.Expect(elements, LeastBytes(type), shown);
      value = Json::array();
      for (uint64_t j = 0; j < elements; ++j) value.push_back(ReadValue(reader, type, shown));
    } else {
      value = ReadValue(reader, type, shown);
    }
    if (!metadata.emplace(std::move(key), std::move(value)).second) {
      reader.Refuse(shown + " is there twice");
    }
  }
  return metadata;
}

uint64_t AlignmentOf(const Json& metadata, const HeaderReader& reader) {
  const auto found = metadata.find("general.alignment");
  if (found == metadata.end()) return kDefaultAlignment;
  const uint64_t alignment = found->is_number_unsigned() ? found->get<uint64_t>() : 0;
  if (alignment == 0 || alignment > kMaxAlignment || (alignment & (alignment - 1)) != 0) {
    reader.Refuse("general.alignment is " + ShownJson(*found) + "; allowed: a power of two up to " +
                  std::to_string(kMaxAlignment));
  }
  return alignment;
}

// Shape of a tensor, and its number of elements.
struct Extents {
  std::vector<int64_t> shape;
  uint64_t numbers = 1;
};

Extents ReadExtents(HeaderReader& reader, const std::string& where) {
  const auto dims = reader.Number<uint32_t>();
  if (dims > kMaxDims) {
    reader.Refuse(where + " has " + std::to_string(dims) + " dimensions; allowed: at most " +
                  std::to_string(kMaxDims));
  }
  Extents extents;
  bool empty = false;
  for (uint32_t dim = 0; dim < dims; ++dim) {
    const auto extent = reader.Number<uint64_t>();
    empty |= extent == 0;
    // An empty tensor's other extents must not overflow either, in any order of multiplying.
    if (__builtin_mul_overflow(extents.numbers, std::max<uint64_t>(extent, 1), &extents.numbers) ||
        extents.numbers > INT64_MAX) {
      reader.Refuse(where + " has a shape that overflows");
    }
    extents.shape.insert(extents.shape.begin(), static_cast<int64_t>(extent));
  }
  if (empty) extents.numbers = 0;
  return extents;
}

// Fills dtype, shape and bytes; returns the offset in the data section.
uint64_t ReadTensorInfo(HeaderReader& reader, const std::string& where, uint64_t alignment,
                        StoredTensor& tensor) {
  auto [shape, numbers] = ReadExtents(reader, where);
  const auto number = reader.Number<uint32_t>();
  const std::optional<TensorType> type = SupportedType(number);
  if (!type) {
    reader.Refuse(where + " is of type " + NameOfType(number) + "; supported: " + SupportedTypes());
  }
  const uint64_t row = shape.empty() ? 1 : static_cast<uint64_t>(shape.back());
  if (row % type->numbers != 0 ||
      __builtin_mul_overflow(numbers / type->numbers, type->bytes, &tensor.bytes)) {
    reader.Refuse(where + " has rows of " + std::to_string(row) + "; allowed for " + type->name +
                  ": multiples of " + std::to_string(type->numbers) + " that do not overflow");
  }
  tensor.dtype = type->name;
  tensor.shape = std::move(shape);
  const auto begin = reader.Number<uint64_t>();
  if (begin % alignment != 0) {
    reader.Refuse(where + " is at offset " + std::to_string(begin) + "; allowed: multiples of " +
                  std::to_string(alignment));
  }
  return begin;
}

void CheckVersion(const InputFile& file, HeaderReader& reader) {
  if (file.size() < 4 || reader.Number<std::array<char, 4>>() != std::array{'G', 'G', 'U', 'F'}) {
    reader.Refuse("does not begin with GGUF");
  }
  const auto version = reader.Number<uint32_t>();
  if (version != 2 && version != 3) {
    reader.Refuse("is of version " + std::to_string(version) +
                  "; supported: 2 and 3, little-endian");
  }
}

// Checks that tensors lie within the file and apart, and makes their offsets those in the file.
void PlaceTensors(const InputFile& file, uint64_t data_begin,
                  std::map<std::string, GgufTensor>& tensors) {
  const auto refuse = [&](const std::string& why) { throw LoadError(file.name() + ": " + why); };
  const uint64_t data_bytes = file.size() - std::min(file.size(), data_begin);
  std::vector<std::pair<const std::string*, GgufTensor*>> in_order;
  for (auto& [name, entry] : tensors) {
    if (entry.begin > data_bytes || entry.bytes > data_bytes - entry.begin) {
      refuse("tensor " + Printable(name) + " is " + std::to_string(entry.bytes) +
             " bytes at offset " + std::to_string(entry.begin) + "; the file holds " +
             std::to_string(data_bytes) + " bytes of data");
    }
    in_order.emplace_back(&name, &entry);
  }
  std::sort(in_order.begin(), in_order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->bytes) <
           std::pair(b.second->begin, b.second->bytes);
  });
  uint64_t end = 0;
  for (const auto& [name, entry] : in_order) {
    if (entry->begin < end) {
      refuse("tensor " + Printable(*name) + " overlaps the one before it");
    }
    end = entry->begin + entry->bytes;
    entry->begin += data_begin;
  }
}

}  // namespace

GgufHeader ReadGgufHeader(const InputFile& file) {
  HeaderReader reader(file);
  CheckVersion(file, reader);
  const auto tensors = reader.Number<uint64_t>();
  const auto keys = reader.Number<uint64_t>();
  if (tensors > kMaxGgufTensors) {
    reader.Refuse("has " + std::to_string(tensors) + " tensors; allowed: at most " +
                  std::to_string(kMaxGgufTensors));
  }
  GgufHeader header;
  header.metadata = ReadMetadata(reader, keys);
  const uint64_t alignment = AlignmentOf(header.metadata, reader);
  for (uint64_t i = 0; i < tensors; ++i) {
    std::string name = reader.Text(kMaxNameBytes, "name of tensor " + std::to_string(i));
    const std::string where = "tensor " + Printable(name);
    GgufTensor tensor;
    tensor.begin = ReadTensorInfo(reader, where, alignment, tensor);
    if (!header.tensors.emplace(std::move(name), std::move(tensor)).second) {
      reader.Refuse(where + " is there twice");
    }
  }
  PlaceTensors(file, RoundUp(reader.offset(), alignment), header.tensors);
  return header;
}

}  // namespace triptych::checkpoint
