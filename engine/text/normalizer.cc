#include "engine/text/normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include "engine/text/tokenizer.h"

namespace triptych {
namespace {

// To what a short text may grow at least.
constexpr size_t kAlwaysAllowedBytes = 1 << 16;

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
  if (U_FAILURE(error)) throw std::runtime_error("ICU has no data of normal forms");
  return *normalizer;
}

std::string Apply(UnicodeForm form, std::string_view text) {
  std::string normal;
  icu::StringByteSink<std::string> sink(&normal, static_cast<int32_t>(text.size()));
  UErrorCode error = U_ZERO_ERROR;
  NormalizerOf(form).normalizeUTF8(
      0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())), sink, nullptr, error);
  if (U_FAILURE(error)) throw EncodeError(std::string("ICU: ") + u_errorName(error));
  return normal;
}

std::string Apply(const PrependStep& step, std::string_view text) {
  return step.text + std::string(text);
}

std::string Apply(const ReplaceStep& step, std::string_view text) {
  std::string replaced;
  size_t end = 0;
  for (const TextRange& match : step.pattern.FindAll(text)) {
    replaced += text.substr(end, match.begin - end);
    replaced += step.by;
    end = match.end;
    if (replaced.size() > kMaxNormalizedGrowth * text.size() + kAlwaysAllowedBytes) {
      throw EncodeError("the tokenizer's normalizer makes too much of this text");
    }
  }
  return replaced += text.substr(end);
}

std::string Apply(const StripStep& step, std::string_view text) {
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

}  // namespace

std::string Normalize(const std::vector<NormalizerStep>& steps, std::string_view text) {
  std::string normal(text);
  for (const NormalizerStep& step : steps) {
    if (normal.empty()) break;
    normal = std::visit([&](const auto& it) { return Apply(it, normal); }, step);
  }
  return normal;
}

}  // namespace triptych
