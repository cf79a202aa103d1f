#include "engine/jinja/text.h"

#include <algorithm>

namespace triptych::jinja {

void Text::Append(std::string_view bytes, Source source) {
  if (bytes.empty()) return;
  bytes_ += bytes;
  if (!runs_.empty() && runs_.back().source == source) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), source});
  }
}

void Text::Append(const Text& other, size_t begin, size_t end) {
  for (size_t i = other.RunAt(begin); begin < end; ++i) {
    const Run& run = other.runs_[i];
    const size_t until = std::min(run.end, end);
    Append(std::string_view(other.bytes_).substr(begin, until - begin), run.source);
    begin = until;
  }
}

Text Text::Sub(size_t begin, size_t end) const {
  Text sub;
  sub.Append(*this, begin, end);
  return sub;
}

Source Text::SourceAt(size_t offset) const {
  if (runs_.empty()) return Source::kData;
  return runs_[std::min(RunAt(offset), runs_.size() - 1)].source;
}

size_t Text::RunAt(size_t offset) const {
  const auto found = std::upper_bound(runs_.begin(), runs_.end(), offset,
                                      [](size_t value, const Run& run) { return value < run.end; });
  return static_cast<size_t>(found - runs_.begin());
}

char32_t NextCodePoint(std::string_view bytes, size_t& offset) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char first = at(offset++);
  if (first < 0xC0) return first;
  const size_t more = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
  char32_t code_point = first & (0x3F >> more);
  size_t next = offset;
  for (size_t i = 0; i < more; ++i, ++next) {
    if (next == bytes.size() || (at(next) & 0xC0) != 0x80) return first;
    code_point = code_point << 6 | (at(next) & 0x3F);
  }
  offset = next;
  return code_point;
}

size_t CountCodePoints(std::string_view bytes) {
  size_t count = 0;
  for (size_t offset = 0; offset < bytes.size(); ++count) NextCodePoint(bytes, offset);
  return count;
}

void AppendUtf8(char32_t code_point, std::string& bytes) {
  const auto byte = [&](char32_t bits) { bytes += static_cast<char>(bits); };
  if (code_point < 0x80) return byte(code_point);
  if (code_point < 0x800) {
    byte(0xC0 | code_point >> 6);
  } else if (code_point < 0x10000) {
    byte(0xE0 | code_point >> 12);
    byte(0x80 | (code_point >> 6 & 0x3F));
  } else {
    byte(0xF0 | code_point >> 18);
    byte(0x80 | (code_point >> 12 & 0x3F));
    byte(0x80 | (code_point >> 6 & 0x3F));
  }
  byte(0x80 | (code_point & 0x3F));
}

}  // namespace triptych::jinja
