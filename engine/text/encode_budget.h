// What encoding one text may take, whatever its tokenizer's file says. Torch-free.
#ifndef TRIPTYCH_ENGINE_TEXT_ENCODE_BUDGET_H_
#define TRIPTYCH_ENGINE_TEXT_ENCODE_BUDGET_H_

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "engine/text/tokenizer.h"

namespace triptych {

// Of a whole text, however many pieces its steps see. Published files take a small part of it.
class EncodeBudget {
 public:
  using Clock = std::chrono::steady_clock;

  // Bytes that steps may write for each of the text, and beside.
  static constexpr size_t kMaxWrittenPerByte = 64;
  static constexpr size_t kMaxWrittenBeside = size_t{64} << 10;
  // And at once: ICU and Bpe number them with 32 bits.
  static constexpr size_t kMaxWrittenAtOnce = size_t{1} << 30;
  // For patterns to find what they seek, and for each byte of the text.
  static constexpr std::chrono::seconds kMaxTime{10};
  static constexpr std::chrono::microseconds kMaxTimePerByte{1};

  explicit EncodeBudget(size_t text_bytes)
      : left_(kMaxWrittenPerByte * text_bytes + kMaxWrittenBeside),
        deadline_(Clock::now() + kMaxTime + kMaxTimePerByte * static_cast<int64_t>(text_bytes)) {}

  // A step writes so many bytes. Called before they are there, where that can be known. Throws
  // EncodeError.
  void Write(size_t bytes) {
    if (bytes > left_ || bytes > kMaxWrittenAtOnce) {
      throw EncodeError("the tokenizer's steps make too much of this text");
    }
    left_ -= bytes;
  }

  Clock::time_point deadline() const { return deadline_; }

 private:
  size_t left_;
  Clock::time_point deadline_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_ENCODE_BUDGET_H_
