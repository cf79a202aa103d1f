// Shared code of fuzz targets: choices made from bytes, and checked promises.
#ifndef TRIPTYCH_TESTS_FUZZ_INPUT_H_
#define TRIPTYCH_TESTS_FUZZ_INPUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

#include "engine/base/utf8.h"

namespace triptych {

// Throws std::logic_error unless `holds`; `promise` is the expected property.
inline void Promise(bool holds, const std::string& promise) {
  if (!holds) throw std::logic_error("broken promise: " + promise);
}

// Checks a message for people: one line of valid, printable UTF-8, at most `most_bytes` long.
inline void PromiseClearLine(std::string_view message, size_t most_bytes) {
  const std::string shown(message);
  Promise(!message.empty(), "a message says something");
  Promise(message.size() <= most_bytes, "a message is short: " + shown);
  Promise(!FindInvalidUtf8(message), "a message is valid UTF-8: " + shown);
  Promise(std::none_of(message.begin(), message.end(),
                       [](unsigned char c) { return c < 0x20 || c == 0x7f; }),
          "a message has no control characters: " + shown);
}

// Choices taken from the front of the input. After its end, all are zero.
class FuzzInput {
 public:
  explicit FuzzInput(std::string_view bytes) : rest_(bytes) {}

  std::string_view Take(size_t count) {
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view TakeAll() { return Take(rest_.size()); }

  // A number of any bits.
  template <typename Number>
  Number Value() {
    Number value = 0;
    const std::string_view bytes = Take(sizeof(value));
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  size_t AtMost(uint8_t most) { return Value<uint8_t>() % (size_t{most} + 1); }

 private:
  std::string_view rest_;
};

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_FUZZ_INPUT_H_
