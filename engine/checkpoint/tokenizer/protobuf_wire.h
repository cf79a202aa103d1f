// Reader and writer of the wire format of protocol buffers, for tokenizer.model.
#ifndef TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_PROTOBUF_WIRE_H_
#define TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_PROTOBUF_WIRE_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "engine/base/error.h"

namespace triptych::checkpoint {

// Reads the wire format of protocol buffers.
class WireReader {
 public:
  struct Field {
    uint64_t number = 0;
    uint64_t value = 0;      // of a varint
    std::string_view bytes;  // of a field with a length
  };

  WireReader(std::string_view bytes, const std::string& source) : rest_(bytes), source_(source) {}

  // False at the end. Throws LoadError.
  bool Next(Field& field) {
    if (rest_.empty()) return false;
    const uint64_t key = Varint();
    field = {key >> 3, 0, {}};
    switch (key & 7) {
      case 0:
        field.value = Varint();
        return true;
      case 1:
        field.bytes = Take(8);
        return true;
      case 2:
        field.bytes = Take(Varint());
        return true;
      case 5:
        field.bytes = Take(4);
        return true;
      default:
        Fail();
    }
  }

 private:
  [[noreturn]] void Fail() const { throw LoadError(source_ + ": is no SentencePiece model"); }

  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(Take(1)[0]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    Fail();
  }

  std::string_view Take(uint64_t size) {
    if (size > rest_.size()) Fail();
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
  const std::string& source_;
};

// Writes the wire format of protocol buffers.
class WireWriter {
 public:
  void AddNumber(uint64_t field, uint64_t value) {
    Varint(field << 3);
    Varint(value);
  }
  void AddFloat(uint64_t field, float value) {
    Varint(field << 3 | 5);
    char bytes[sizeof(float)];
    std::memcpy(bytes, &value, sizeof(float));  // little-endian
    bytes_.append(bytes, sizeof(float));
  }
  void AddBytes(uint64_t field, std::string_view bytes) {
    Varint(field << 3 | 2);
    Varint(bytes.size());
    bytes_.append(bytes);
  }

  const std::string& bytes() const { return bytes_; }

 private:
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

}  // namespace triptych::checkpoint

#endif  // TRIPTYCH_ENGINE_CHECKPOINT_TOKENIZER_PROTOBUF_WIRE_H_
