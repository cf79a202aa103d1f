// Text with the provenance of each byte.
#ifndef TRIPTYCH_ENGINE_JINJA_TEXT_H_
#define TRIPTYCH_ENGINE_JINJA_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace triptych::jinja {

// Author of a text: the template, whose text may name special tokens, or the data, whose text may
// not.
enum class Source : uint8_t { kTemplate, kData };

// UTF-8 text, as a sequence of runs of one source each. Offsets and sizes are in bytes.
class Text {
 public:
  Text() = default;
  Text(std::string_view bytes, Source source) { Append(bytes, source); }

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  void Append(std::string_view bytes, Source source);
  // REQUIRES: begin <= end <= other.size().
  void Append(const Text& other, size_t begin, size_t end);
  void Append(const Text& other) { Append(other, 0, other.size()); }

  // REQUIRES: begin <= end <= size().
  Text Sub(size_t begin, size_t end) const;
  // The source of the byte at an offset; at the end the last run's; kData if the text is empty.
  Source SourceAt(size_t offset) const;

  // The number of runs, and of those that overlap the range.
  size_t runs() const { return runs_.size(); }
  size_t RunsIn(size_t begin, size_t end) const {
    return begin == end ? 0 : RunAt(end - 1) - RunAt(begin) + 1;
  }
  // Bytes of a run in memory.
  static constexpr size_t kRunBytes = 2 * sizeof(size_t);

  // Bytes in memory.
  size_t MemoryBytes() const { return bytes_.capacity() + runs_.capacity() * sizeof(Run); }

  // Calls visit(bytes, source) for each run in order.
  template <typename Visit>
  void ForEachRun(Visit visit) const {
    size_t begin = 0;
    for (const Run& run : runs_) {
      visit(std::string_view(bytes_).substr(begin, run.end - begin), run.source);
      begin = run.end;
    }
  }

 private:
  struct Run {
    size_t end;
    Source source;
  };

  // The first run that ends beyond the offset.
  size_t RunAt(size_t offset) const;

  std::string bytes_;
  std::vector<Run> runs_;  // not empty; neighbours differ in source
};

// The code point at `offset`, which moves to the next one. Each byte that is not UTF-8 is one.
// REQUIRES: offset < bytes.size().
char32_t NextCodePoint(std::string_view bytes, size_t& offset);
size_t CountCodePoints(std::string_view bytes);
void AppendUtf8(char32_t code_point, std::string& bytes);

}  // namespace triptych::jinja

#endif  // TRIPTYCH_ENGINE_JINJA_TEXT_H_
