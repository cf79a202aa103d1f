// Builder of GGUF files, byte by byte.
#ifndef TRIPTYCH_TESTS_SUPPORT_GGUF_FILE_H_
#define TRIPTYCH_TESTS_SUPPORT_GGUF_FILE_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace triptych {

template <typename T>
std::string BytesOf(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  std::string bytes;
  for (const T value : values) bytes += BytesOf(value);
  return bytes;
}

// A file contains its keys and its tensors in the order in which they are added. Duplicates stay.
class GgufBuilder {
 public:
  enum Type : uint32_t {
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
    kFloat64
  };

  static std::string Text(std::string_view text) {
    return BytesOf(uint64_t{text.size()}) + std::string(text);
  }

  // A value of any type, given as its bytes.
  GgufBuilder& Add(std::string_view key, uint32_t type, const std::string& bytes) {
    ++keys_;
    metadata_ += Text(key) + BytesOf(type) + bytes;
    return *this;
  }
  GgufBuilder& Add(std::string_view key, std::string_view text) {
    return Add(key, kString, Text(text));
  }
  GgufBuilder& Add(std::string_view key, uint32_t value) {
    return Add(key, kUint32, BytesOf(value));
  }
  GgufBuilder& Add(std::string_view key, float value) { return Add(key, kFloat32, BytesOf(value)); }
  GgufBuilder& AddBool(std::string_view key, bool value) {
    return Add(key, kBool, std::string(1, value ? '\1' : '\0'));
  }
  GgufBuilder& Add(std::string_view key, const std::vector<std::string>& texts) {
    std::string bytes;
    for (const std::string& text : texts) bytes += Text(text);
    return AddList(key, kString, texts.size(), bytes);
  }
  GgufBuilder& Add(std::string_view key, const std::vector<int32_t>& values) {
    return AddList(key, kInt32, values.size(), BytesOf(values));
  }
  GgufBuilder& Add(std::string_view key, const std::vector<float>& values) {
    return AddList(key, kFloat32, values.size(), BytesOf(values));
  }
  GgufBuilder& AddList(std::string_view key, uint32_t type, uint64_t count,
                       const std::string& bytes) {
    return Add(key, kArray, BytesOf(type) + BytesOf(count) + bytes);
  }

  // dims: innermost first, as in GGUF. Data follows the previous data, at the next multiple of the
  // alignment.
  GgufBuilder& AddTensor(std::string_view name, uint32_t type, const std::vector<uint64_t>& dims,
                         const std::string& data) {
    AddTensorAt(name, type, dims, data_.size());
    data_ += data;
    data_.resize((data_.size() + alignment_ - 1) / alignment_ * alignment_);
    return *this;
  }
  GgufBuilder& AddTensorAt(std::string_view name, uint32_t type, const std::vector<uint64_t>& dims,
                           uint64_t offset) {
    ++tensors_;
    infos_ += Text(name) + BytesOf(static_cast<uint32_t>(dims.size())) + BytesOf(dims) +
              BytesOf(type) + BytesOf(offset);
    return *this;
  }

  // Sets the alignment of the following tensors, and adds the file's key for it.
  GgufBuilder& SetAlignment(uint32_t alignment) {
    alignment_ = alignment;
    return Add("general.alignment", alignment);
  }

  std::string Bytes(uint32_t version = 3) const {
    std::string file =
        "GGUF" + BytesOf(version) + BytesOf(tensors_) + BytesOf(keys_) + metadata_ + infos_;
    file.resize((file.size() + alignment_ - 1) / alignment_ * alignment_);
    return file + data_;
  }

 private:
  uint64_t alignment_ = 32;
  uint64_t keys_ = 0;
  uint64_t tensors_ = 0;
  std::string metadata_;
  std::string infos_;
  std::string data_;
};

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_GGUF_FILE_H_
