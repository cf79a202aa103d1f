#include "client/format.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string_view>

#include "engine/base/quantities.h"

namespace triptych::client {
namespace {

double Seconds(const google::protobuf::Duration& duration) {
  using google::protobuf::util::TimeUtil;
  return static_cast<double>(TimeUtil::DurationToNanoseconds(duration)) * 1e-9;
}

// The enumerator's name without its prefix; its number if this program does not know it.
std::string WithoutPrefix(std::string_view name, std::string_view prefix, int number) {
  if (name.empty()) return std::to_string(number);
  return std::string(name.substr(prefix.size()));
}

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

std::string FormatSeconds(double seconds) {
  if (seconds >= 0.99995) return FormatDecimal(seconds, 2) + " s";
  return FormatDecimal(seconds * 1e3, seconds < 0.00995 ? 2 : 1) + " ms";
}

std::string FormatSaving(int64_t mha_bytes, int64_t bytes) {
  if (bytes <= 0) return "-";
  return FormatDecimal(static_cast<double>(mha_bytes) / static_cast<double>(bytes), 1) + "x";
}

std::string OneLine(std::string text) {
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  std::replace_if(text.begin(), text.end(), is_control, ' ');
  return text;
}

std::string FormatBar(double fraction, int width) {
  static constexpr std::array kEighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  int eighths = static_cast<int>(std::lround(fraction * width * 8));
  if (fraction > 0 && eighths == 0) eighths = 1;
  std::string bar;
  for (; eighths >= 8; eighths -= 8) bar += "█";
  return bar + kEighths[eighths];
}

std::string Label(v1::AttentionKind kind) {
  return WithoutPrefix(v1::AttentionKind_Name(kind), "ATTENTION_KIND_", kind);
}

std::string Label(v1::SequenceState state) {
  return Lower(WithoutPrefix(v1::SequenceState_Name(state), "SEQUENCE_STATE_", state));
}

std::string Label(v1::FinishReason reason) {
  return Lower(WithoutPrefix(v1::FinishReason_Name(reason), "FINISH_REASON_", reason));
}

double TimeToFirstToken(const v1::Usage& usage) {
  return Seconds(usage.queue_time()) + Seconds(usage.prefill_time());
}

std::string FormatDecodeRate(const v1::Usage& usage) {
  const double seconds = Seconds(usage.decode_time());
  if (usage.generated_tokens() < 2 || seconds <= 0) return "-";
  return FormatDecimal((usage.generated_tokens() - 1) / seconds, 1);
}

}  // namespace triptych::client
