#include "engine/jinja/text_functions.h"

#include <unicode/ucasemap.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <memory>
#include <string>

namespace triptych::jinja {
namespace {

// Offset of the last code point before `end`.
size_t PreviousOffset(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) {
    --begin;
  }
  return begin;
}

template <typename Strips>
ByteRange StripWhere(std::string_view text, Sides sides, Strips strips) {
  size_t begin = 0;
  size_t end = text.size();
  while (sides.left && begin < end) {
    size_t next = begin;
    if (!strips(NextCodePoint(text, next))) break;
    begin = next;
  }
  while (sides.right && end > begin) {
    size_t last = PreviousOffset(text, end);
    const size_t at = last;
    if (!strips(NextCodePoint(text, last))) break;
    end = at;
  }
  return {begin, end};
}

// Parts up to this size are found by comparing them at each place.
constexpr size_t kShortPart = 16;

// As std::search, in linear time (Knuth, Morris, Pratt).
template <typename Iterator>
Iterator LinearSearch(Heap& heap, Iterator text, Iterator text_end, Iterator part,
                      Iterator part_end) {
  const auto size = static_cast<size_t>(part_end - part);
  const auto at = [&](size_t i) { return part[static_cast<std::ptrdiff_t>(i)]; };
  if (size > static_cast<size_t>(text_end - text)) return text_end;
  heap.Scan(size);
  heap.Require(size * sizeof(size_t));
  std::vector<size_t> border(size, 0);  // [n]: of the first n + 1 bytes
  for (size_t i = 1, length = 0; i < size; ++i) {
    while (length > 0 && at(i) != at(length)) length = border[length - 1];
    if (at(i) == at(length)) ++length;
    border[i] = length;
  }
  size_t length = 0;
  size_t scanned = 0;
  for (; text != text_end; ++text) {
    if (++scanned % 1024 == 0) heap.Scan(1024);
    while (length > 0 && *text != at(length)) length = border[length - 1];
    if (*text == at(length)) ++length;
    if (length == size) {
      heap.Scan(scanned % 1024);
      return text - static_cast<std::ptrdiff_t>(size - 1);
    }
  }
  heap.Scan(scanned % 1024);
  return text_end;
}

bool IsLineEnd(char32_t c) {
  return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

std::vector<ByteRange> SplitAtSpaces(std::string_view text, int64_t most, Heap& heap) {
  std::vector<ByteRange> parts;
  size_t at = LeadingSpaces(text);
  while (at < text.size()) {
    heap.Step();
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.emplace_back(at, text.size());
      break;
    }
    size_t end = at;
    for (size_t next = at; next < text.size(); end = next) {
      if (IsSpace(NextCodePoint(text, next))) break;
    }
    parts.emplace_back(at, end);
    at = end + LeadingSpaces(text.substr(end));
  }
  return parts;
}

std::vector<ByteRange> SplitAtSpacesFromRight(std::string_view text, int64_t most, Heap& heap) {
  std::vector<ByteRange> parts;
  size_t end = text.size() - TrailingSpaces(text);
  while (end > 0) {
    heap.Step();
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.emplace_back(0, end);
      break;
    }
    size_t begin = end;
    while (begin > 0) {
      const size_t previous = PreviousOffset(text, begin);
      size_t next = previous;
      if (IsSpace(NextCodePoint(text, next))) break;
      begin = previous;
    }
    parts.emplace_back(begin, end);
    end = begin - TrailingSpaces(text.substr(0, begin));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

struct CloseCaseMap {
  void operator()(UCaseMap* map) const { ucasemap_close(map); }
};

std::string MapRun(std::string_view run, bool upper) {
  if (std::all_of(run.begin(), run.end(),
                  [](char c) { return static_cast<signed char>(c) >= 0; })) {
    std::string mapped(run);
    for (char& c : mapped) {
      if (upper ? (c >= 'a' && c <= 'z') : (c >= 'A' && c <= 'Z')) c = static_cast<char>(c ^ 0x20);
    }
    return mapped;
  }
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<UCaseMap, CloseCaseMap> map(ucasemap_open("", 0, &status));
  if (run.size() > (size_t{1} << 28)) throw Failure("a text is too long", RenderError::kLimit);
  std::string mapped(3 * run.size(), '\0');  // full case mappings at most triple the bytes
  const auto convert = upper ? ucasemap_utf8ToUpper : ucasemap_utf8ToLower;
  const int32_t size = map == nullptr
                           ? 0
                           : convert(map.get(), mapped.data(), static_cast<int32_t>(mapped.size()),
                                     run.data(), static_cast<int32_t>(run.size()), &status);
  if (U_FAILURE(status)) throw Failure("letters cannot be converted");
  mapped.resize(static_cast<size_t>(size));
  return mapped;
}

}  // namespace

bool IsSpace(char32_t c) {
  return (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= ' ') || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

size_t LeadingSpaces(std::string_view text) {
  return StripWhere(text, {.left = true, .right = false}, IsSpace).first;
}

size_t TrailingSpaces(std::string_view text) {
  return text.size() - StripWhere(text, {.left = false, .right = true}, IsSpace).second;
}

ByteRange Strip(std::string_view text) { return StripWhere(text, {}, IsSpace); }

ByteRange Strip(Heap& heap, std::string_view text, Sides sides,
                const std::optional<std::string_view>& characters) {
  heap.Step();
  if (!characters) {
    return StripWhere(text, sides, [&](char32_t c) {
      heap.Step();
      return IsSpace(c);
    });
  }
  heap.Step(static_cast<int64_t>(characters->size()));
  heap.Require(characters->size() * sizeof(char32_t));
  std::vector<char32_t> stripped;
  for (size_t i = 0; i < characters->size();) stripped.push_back(NextCodePoint(*characters, i));
  std::sort(stripped.begin(), stripped.end());
  return StripWhere(text, sides, [&](char32_t c) {
    heap.Step();
    return std::binary_search(stripped.begin(), stripped.end(), c);
  });
}

size_t FindText(Heap& heap, std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return text.npos;
  if (part.size() <= kShortPart) {
    const size_t found = text.find(part, from);
    heap.Scan(std::min(found, text.size()) - from);
    return found;
  }
  const std::string_view rest = text.substr(from);
  const auto found = LinearSearch(heap, rest.begin(), rest.end(), part.begin(), part.end());
  return found == rest.end() ? text.npos : static_cast<size_t>(found - text.begin());
}

size_t FindLastText(Heap& heap, std::string_view text, std::string_view part) {
  if (part.size() <= kShortPart) {
    const size_t found = text.rfind(part);
    heap.Scan(found == text.npos ? text.size() : text.size() - found);
    return found;
  }
  const auto found = LinearSearch(heap, text.rbegin(), text.rend(), part.rbegin(), part.rend());
  if (found == text.rend()) return text.npos;
  return static_cast<size_t>(text.rend() - found) - part.size();
}

std::vector<ByteRange> Split(std::string_view text,
                             const std::optional<std::string_view>& separator, int64_t most,
                             bool from_right, Heap& heap) {
  if (!separator) {
    heap.Scan(2 * text.size());
    return from_right ? SplitAtSpacesFromRight(text, most, heap) : SplitAtSpaces(text, most, heap);
  }
  std::vector<ByteRange> parts;
  const auto splits_left = [&] {
    heap.Step();
    return most < 0 || static_cast<int64_t>(parts.size()) < most;
  };
  if (from_right) {
    size_t end = text.size();
    while (splits_left()) {
      const size_t found = FindLastText(heap, text.substr(0, end), *separator);
      if (found == text.npos) break;
      parts.emplace_back(found + separator->size(), end);
      end = found;
    }
    parts.emplace_back(0, end);
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  size_t begin = 0;
  while (splits_left()) {
    const size_t found = FindText(heap, text, *separator, begin);
    if (found == text.npos) break;
    parts.emplace_back(begin, found);
    begin = found + separator->size();
  }
  parts.emplace_back(begin, text.size());
  return parts;
}

std::vector<ByteRange> SplitLines(std::string_view text, bool keep_ends, Heap& heap) {
  heap.Scan(2 * text.size());
  std::vector<ByteRange> lines;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t end = i;
    const char32_t c = NextCodePoint(text, i);
    if (!IsLineEnd(c)) continue;
    if (c == '\r' && i < text.size() && text[i] == '\n') ++i;
    heap.Step();
    lines.emplace_back(begin, keep_ends ? i : end);
    begin = i;
  }
  if (begin < text.size()) lines.emplace_back(begin, text.size());
  return lines;
}

Value Replace(Heap& heap, const Text& text, std::string_view from, const Text& to, int64_t most) {
  const std::string& bytes = text.bytes();
  TextBuilder out(heap);
  size_t copied = 0;
  size_t at = 0;
  for (int64_t count = 0; most < 0 || count < most; ++count) {
    const size_t found = from.empty() ? at : FindText(heap, bytes, from, at);
    if (found > bytes.size()) break;
    out.Add(text, copied, found);
    out.Add(to);
    copied = found + from.size();
    at = copied;
    if (from.empty()) {  // between code points
      if (at == bytes.size()) break;
      NextCodePoint(bytes, at);
    }
  }
  out.Add(text, copied, text.size());
  return out.Take();
}

Value MapCase(Heap& heap, const Text& text, LetterCase letter_case) {
  TextBuilder out(heap);
  bool begins = true;  // the next letter begins the text, or with kTitle a word
  text.ForEachRun([&](std::string_view run, Source source) {
    heap.Step(8);  // opens a case map
    heap.Look(run.size());
    if (letter_case == LetterCase::kUpper || letter_case == LetterCase::kLower) {
      return out.Add(MapRun(run, letter_case == LetterCase::kUpper), source);
    }
    std::string mapped;
    size_t i = 0;
    if (letter_case == LetterCase::kCapitalized) {
      if (std::exchange(begins, false)) {
        AppendUtf8(static_cast<char32_t>(u_totitle(static_cast<UChar32>(NextCodePoint(run, i)))),
                   mapped);
      }
      mapped += MapRun(run.substr(i), /*upper=*/false);
    } else {
      while (i < run.size()) {
        const auto c = static_cast<UChar32>(NextCodePoint(run, i));
        AppendUtf8(static_cast<char32_t>(begins ? u_totitle(c) : u_tolower(c)), mapped);
        begins = !u_hasBinaryProperty(c, UCHAR_CASED);
      }
    }
    out.Add(mapped, source);
  });
  return out.Take();
}

ByteRange CodePointRange(std::string_view text, size_t begin, size_t end) {
  size_t offset = 0;
  size_t count = 0;
  for (; count < begin && offset < text.size(); ++count) NextCodePoint(text, offset);
  const size_t first = offset;
  for (; count < end && offset < text.size(); ++count) NextCodePoint(text, offset);
  return {first, offset};
}

}  // namespace triptych::jinja
