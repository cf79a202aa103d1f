// Limits on the cost of encoding one text, for untrusted tokenizer files.
#ifndef TRIPTYCH_ENGINE_TEXT_ENCODE_BUDGET_H_
#define TRIPTYCH_ENGINE_TEXT_ENCODE_BUDGET_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/text/tokenizer.h"

namespace triptych {

// Covers a whole text, however many pieces the tokenizer's steps see. Published tokenizers use a
// small part of it.
class EncodeBudget {
 public:
  using Clock = std::chrono::steady_clock;

  // Bytes that steps may write: per byte of the text, and in addition.
  static constexpr size_t kMaxWrittenPerByte = 64;
  static constexpr size_t kMaxWrittenBeside = size_t{64} << 10;
  // Bytes in one write: ICU and Bpe use 32-bit offsets.
  static constexpr size_t kMaxWrittenAtOnce = size_t{1} << 30;
  // Time for all steps: in total, and in addition per byte of the text.
  static constexpr std::chrono::seconds kMaxTime{10};
  static constexpr std::chrono::microseconds kMaxTimePerByte{1};

  explicit EncodeBudget(size_t text_bytes)
      : most_(kMaxWrittenPerByte * text_bytes + kMaxWrittenBeside),
        left_(most_),
        deadline_(Clock::now() + kMaxTime + kMaxTimePerByte * static_cast<int64_t>(text_bytes)) {}

  // Counts `bytes` written by a step. Called before they are written if their number is known by
  // then. Throws EncodeError if they exceed the budget.
  void Write(size_t bytes) {
    if (bytes > left()) {
      std::string message = "the tokenizer's steps write ";
      message += std::to_string(most_ - left_ + bytes) + " bytes for this text; allowed: at most ";
      message += std::to_string(most_) + ", and " + std::to_string(kMaxWrittenAtOnce) + " at once";
      throw EncodeError(message);
    }
    left_ -= bytes;
  }
  // Maximum bytes of the next write.
  size_t left() const { return std::min(left_, kMaxWrittenAtOnce); }

  Clock::time_point deadline() const { return deadline_; }

 private:
  size_t most_;
  size_t left_;
  Clock::time_point deadline_;
};

}  // namespace triptych

#endif  // TRIPTYCH_ENGINE_TEXT_ENCODE_BUDGET_H_
