// What encoding one text may take, whatever its tokenizer's file says. Torch-free.
#ifndef TRIPTYCH_ENGINE_TEXT_ENCODE_BUDGET_H_
#define TRIPTYCH_ENGINE_TEXT_ENCODE_BUDGET_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

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
      : most_(kMaxWrittenPerByte * text_bytes + kMaxWrittenBeside),
        left_(most_),
        deadline_(Clock::now() + kMaxTime + kMaxTimePerByte * static_cast<int64_t>(text_bytes)) {}

  // A step writes so many bytes. Called before they are there, where that can be known. Throws
  // EncodeError.
  void Write(size_t bytes) {
    if (bytes > left()) {
      std::string message = "the tokenizer's steps write ";
      message += std::to_string(most_ - left_ + bytes) + " bytes for this text; allowed: at most ";
      message += std::to_string(most_) + ", and " + std::to_string(kMaxWrittenAtOnce) + " at once";
      throw EncodeError(message);
    }
    left_ -= bytes;
  }
  // The most that may be written next.
  size_t left() const { return std::min(left_, kMaxWrittenAtOnce); }

  Clock::time_point deadline() const { return deadline_; }

 private:
  size_t most_;
  size_t left_;
  Clock::time_point deadline_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_ENCODE_BUDGET_H_
