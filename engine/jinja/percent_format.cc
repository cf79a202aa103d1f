#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "engine/base/parse.h"
#include "engine/jinja/methods.h"
#include "engine/jinja/operators.h"
#include "engine/jinja/value_text.h"

namespace triptych::jinja {
namespace {

constexpr int kMaxWidth = 1000;

// A conversion such as "%-8.3f".
struct Conversion {
  bool left = false;
  bool zero = false;
  bool plus = false;
  bool space = false;
  bool alternate = false;
  int width = 0;
  int precision = -1;
  char letter = 0;
};

// Reads the conversion at `i`, after the '%', and moves to its end.
Conversion ReadConversion(std::string_view format, size_t& i) {
  Conversion conversion;
  const auto at = [&] { return i < format.size() ? format[i] : '\0'; };
  for (;; ++i) {
    if (at() == '-')
      conversion.left = true;
    else if (at() == '0')
      conversion.zero = true;
    else if (at() == '+')
      conversion.plus = true;
    else if (at() == ' ')
      conversion.space = true;
    else if (at() == '#')
      conversion.alternate = true;
    else
      break;
  }
  const auto number = [&] {
    int value = 0;
    for (; at() >= '0' && at() <= '9'; ++i)
      value = std::min(value * 10 + (at() - '0'), kMaxWidth + 1);
    if (value > kMaxWidth) throw Failure("a format is wider than " + std::to_string(kMaxWidth));
    return value;
  };
  conversion.width = number();
  if (at() == '.') {
    ++i;
    conversion.precision = number();
  }
  if (i == format.size()) throw Failure("a format ends within a conversion");
  conversion.letter = format[i++];
  return conversion;
}

std::string Printed(Heap& heap, const Conversion& conversion, const char* type, auto value) {
  heap.Step(32 + std::max(conversion.width, conversion.precision));
  std::string pattern = "%";
  if (conversion.plus) pattern += '+';
  if (conversion.space) pattern += ' ';
  if (conversion.alternate) pattern += '#';
  if (conversion.zero && !conversion.left) pattern += '0' + std::to_string(conversion.width);
  if (conversion.precision >= 0) pattern += "." + std::to_string(conversion.precision);
  pattern += type;
  std::array<char, 4096> text{};
  std::snprintf(text.data(), text.size(), pattern.c_str(), value);
  return text.data();
}

Text Converted(Heap& heap, const Conversion& conversion, const Value& value) {
  switch (conversion.letter) {
    case 's':
    case 'r': {
      TextBuilder out(heap);
      if (conversion.letter == 's') {
        out.Add(Str(heap, value));
      } else {
        AppendRepr(value, heap, out);
      }
      Text text = out.TakeText();
      if (conversion.precision < 0) return text;
      size_t end = 0;
      for (int i = 0; i < conversion.precision && end < text.size(); ++i) {
        NextCodePoint(text.bytes(), end);
      }
      return text.Sub(0, end);
    }
    case 'd':
    case 'i':
    case 'x':
    case 'X':
    case 'o': {
      auto whole = WholeNumber(value);
      if (!whole && value.real() != nullptr && conversion.letter <= 'i' &&
          conversion.letter >= 'd' && std::abs(*value.real()) < 9e18) {
        whole = static_cast<int64_t>(*value.real());
      }
      if (!whole) break;
      const std::string type =
          std::string("ll") + (conversion.letter == 'i' ? 'd' : conversion.letter);
      return {Printed(heap, conversion, type.c_str(), static_cast<long long>(*whole)),
              Source::kTemplate};
    }
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G': {
      const auto real = RealNumber(value);
      if (!real) break;
      return {Printed(heap, conversion, std::string(1, conversion.letter).c_str(), *real),
              Source::kTemplate};
    }
    default:
      throw Failure(std::string("the conversion '%") + conversion.letter + "' is not supported");
  }
  RequireDefined(value);
  throw Failure(std::string("the conversion '%") + conversion.letter + "' is not defined for " +
                std::string(value.TypeName()));
}

void AddPadded(Heap& heap, const Text& text, const Conversion& conversion, TextBuilder& out) {
  heap.Scan(text.size());
  const auto width = static_cast<size_t>(conversion.width);
  const size_t count = CountCodePoints(text.bytes());
  const std::string padding(width > count ? width - count : 0, ' ');
  if (!conversion.left) out.Add(padding, Source::kTemplate);
  out.Add(text);
  if (conversion.left) out.Add(padding, Source::kTemplate);
}

}  // namespace

Value FormatPercent(Heap& heap, const Text& format, const Value& arguments) {
  const std::string& bytes = format.bytes();
  heap.Scan(bytes.size());
  const List* const list = arguments.list();
  const bool is_tuple = list != nullptr && list->kind == List::kTuple;
  size_t used = 0;
  const auto next = [&]() -> const Value& {
    const size_t count = is_tuple ? list->items.size() : 1;
    if (used == count) throw Failure("a format has fewer arguments than conversions");
    return is_tuple ? list->items[used++] : (++used, arguments);
  };
  TextBuilder out(heap);
  size_t copied = 0;
  for (size_t i = bytes.find('%'); i != bytes.npos; i = bytes.find('%', i)) {
    out.Add(format, copied, i);
    ++i;
    if (i < bytes.size() && bytes[i] == '%') {
      out.Add(format, i, i + 1);
      ++i;
    } else if (i < bytes.size() && bytes[i] == '(') {
      const size_t end = bytes.find(')', i);
      if (end == bytes.npos) throw Failure("a format ends within a conversion");
      const Value name = MakeText(heap, format.Sub(i + 1, end));
      if (arguments.dict() == nullptr) throw Failure("a format with names needs a dict");
      const Value* const found = arguments.dict()->Find(heap, name);
      if (found == nullptr) throw Failure("a format names a key that the dict does not have");
      i = end + 1;
      const Conversion conversion = ReadConversion(bytes, i);
      AddPadded(heap, Converted(heap, conversion, *found), conversion, out);
      used = 1;
    } else {
      const Conversion conversion = ReadConversion(bytes, i);
      AddPadded(heap, Converted(heap, conversion, next()), conversion, out);
    }
    copied = i;
  }
  if (is_tuple ? used < list->items.size() : used == 0 && arguments.dict() == nullptr) {
    throw Failure("a format has more arguments than conversions");
  }
  out.Add(format, copied, bytes.size());
  return out.Take();
}

Value FormatBraces(Heap& heap, const Text& format, const Arguments& arguments) {
  const std::string& bytes = format.bytes();
  heap.Scan(bytes.size());
  TextBuilder out(heap);
  size_t next = 0;
  for (size_t i = 0; i < bytes.size();) {
    const size_t brace = std::min(bytes.find_first_of("{}", i), bytes.size());
    out.Add(format, i, brace);
    i = brace;
    if (i == bytes.size()) break;
    if (i + 1 < bytes.size() && bytes[i + 1] == bytes[i]) {
      out.Add(format, i, i + 1);
      i += 2;
      continue;
    }
    const size_t end = bytes.find('}', i);
    if (bytes[i] == '}' || end == bytes.npos) throw Failure("a format has an unmatched brace");
    const std::string name = bytes.substr(i + 1, end - i - 1);
    const auto place = name.empty() ? std::optional(static_cast<int64_t>(next++))
                                    : ParseNumber<int64_t>(name, 0, int64_t{1} << 30);
    heap.Step(static_cast<int64_t>(arguments.named.size()));
    const Value* value = arguments.Named(name);
    if (place && static_cast<size_t>(*place) < arguments.positional.size()) {
      value = &arguments.positional[static_cast<size_t>(*place)];
    }
    if (value == nullptr) {
      throw Failure("format has no argument for '{" + name.substr(0, 40) +
                    "}'; allowed: names and places of arguments");
    }
    out.Add(Str(heap, *value));
    i = end + 1;
  }
  return out.Take();
}

}  // namespace triptych::jinja
