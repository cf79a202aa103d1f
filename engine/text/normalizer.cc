#include "engine/text/normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "engine/text/tokenizer.h"

namespace triptych {
namespace {

// Maximum bytes of a text that become one byte in any of Unicode's forms. A character decomposes to
// elements, and a form has the same elements as the text, except for their order. Let an element's
// weight be the bytes of the longest character that decomposes to it and to no other. No character
// is longer than the sum of its elements' weights, and so no text is. That sum is at most 3.5 times
// the bytes of a character that form C may hold (U+1FBE U+0308 U+0301, 7 bytes, become U+0390, 2
// bytes), 3 times in form D, and 4 times in KC and KD (mathematical letters). NormalizerTest
// computes this from ICU's data.
constexpr int64_t kMostFormShrinkage = 4;
// Larger values count as unbounded.
constexpr int64_t kMostShrinkage = int64_t{1} << 32;

const icu::Normalizer2& NormalizerOf(UnicodeForm form) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = nullptr;
  switch (form) {
    case UnicodeForm::kNfc:
      normalizer = icu::Normalizer2::getNFCInstance(error);
      break;
    case UnicodeForm::kNfd:
      normalizer = icu::Normalizer2::getNFDInstance(error);
      break;
    case UnicodeForm::kNfkc:
      normalizer = icu::Normalizer2::getNFKCInstance(error);
      break;
    case UnicodeForm::kNfkd:
      normalizer = icu::Normalizer2::getNFKDInstance(error);
      break;
  }
  if (U_FAILURE(error)) {
    throw std::runtime_error(std::string("ICU has no normalization data: ") + u_errorName(error));
  }
  return *normalizer;
}

// Collects a text, and stops collecting beyond `most` bytes: a normal form may be 11 times as long
// as its text (Unicode's annex 15, table 2).
class BoundedSink final : public icu::ByteSink {
 public:
  explicit BoundedSink(size_t most) : most_(most) {}

  void Append(const char* text, int32_t bytes) override {
    bytes_ += static_cast<size_t>(bytes);
    if (bytes_ <= most_) text_.append(text, static_cast<size_t>(bytes));
  }
  // Bytes of the whole text, including those not collected.
  size_t bytes() const { return bytes_; }
  std::string TakeText() { return std::move(text_); }

 private:
  const size_t most_;
  size_t bytes_ = 0;
  std::string text_;
};

std::string Apply(UnicodeForm form, std::string_view text, EncodeBudget& budget) {
  BoundedSink sink(budget.left());
  UErrorCode error = U_ZERO_ERROR;
  NormalizerOf(form).normalizeUTF8(
      0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())), sink, nullptr, error);
  if (U_FAILURE(error)) throw EncodeError(std::string("ICU: ") + u_errorName(error));
  budget.Write(sink.bytes());
  return sink.TakeText();
}

std::string Apply(const PrependStep& step, std::string_view text, EncodeBudget& budget) {
  budget.Write(step.text.size() + text.size());
  return step.text + std::string(text);
}

std::string Apply(const ReplaceStep& step, std::string_view text, EncodeBudget& budget) {
  const std::vector<TextRange> matches = step.pattern.FindAll(text, budget.deadline());
  size_t size = text.size() + matches.size() * step.by.size();
  for (const TextRange& match : matches) size -= match.end - match.begin;
  budget.Write(size);
  std::string replaced;
  replaced.reserve(size);
  size_t end = 0;
  for (const TextRange& match : matches) {
    replaced += text.substr(end, match.begin - end);
    replaced += step.by;
    end = match.end;
  }
  return replaced += text.substr(end);
}

std::string Apply(const StripStep& step, std::string_view text, EncodeBudget& budget) {
  budget.Write(text.size());
  auto begin = int32_t{0};
  auto end = static_cast<int32_t>(text.size());
  while (step.left && begin < end) {
    int32_t next = begin;
    UChar32 c = 0;
    U8_NEXT(text.data(), next, end, c);
    if (!u_isUWhiteSpace(c)) break;
    begin = next;
  }
  while (step.right && begin < end) {
    int32_t previous = end;
    UChar32 c = 0;
    U8_PREV(text.data(), begin, previous, c);
    if (!u_isUWhiteSpace(c)) break;
    end = previous;
  }
  return std::string(text.substr(begin, end - begin));
}

std::optional<int64_t> Shrinkage(UnicodeForm) { return kMostFormShrinkage; }

std::optional<int64_t> Shrinkage(const PrependStep&) { return 1; }

std::optional<int64_t> Shrinkage(const ReplaceStep& step) {
  if (!step.match_bytes || step.by.empty()) return std::nullopt;
  const auto bytes = static_cast<int64_t>(*step.match_bytes);
  return std::max<int64_t>(1, (bytes + std::ssize(step.by) - 1) / std::ssize(step.by));
}

std::optional<int64_t> Shrinkage(const StripStep&) { return std::nullopt; }

}  // namespace

std::string Normalize(const std::vector<NormalizerStep>& steps, std::string_view text,
                      EncodeBudget& budget) {
  std::string normal(text);
  for (const NormalizerStep& step : steps) {
    if (normal.empty()) break;
    normal = std::visit([&](const auto& it) { return Apply(it, normal, budget); }, step);
  }
  return normal;
}

std::optional<int64_t> MostShrinkage(const std::vector<NormalizerStep>& steps) {
  int64_t most = 1;
  for (const NormalizerStep& step : steps) {
    const std::optional<int64_t> one =
        std::visit([](const auto& it) { return Shrinkage(it); }, step);
    if (!one || most > kMostShrinkage / *one) return std::nullopt;
    most *= *one;
  }
  return most;
}

}  // namespace triptych
