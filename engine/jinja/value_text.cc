#include "engine/jinja/value_text.h"

#include <unicode/uchar.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <string_view>

namespace triptych::jinja {
namespace {

// As Python's str.isprintable().
bool IsPrintable(char32_t c) {
  if (c == ' ') return true;
  constexpr uint32_t kUnprintable =
      U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CS_MASK | U_GC_CO_MASK | U_GC_CN_MASK | U_GC_Z_MASK;
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & kUnprintable) == 0;
}

std::string Escaped(char32_t c) {
  std::array<char, 16> text{};
  const char* const format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
  std::snprintf(text.data(), text.size(), format, static_cast<unsigned>(c));
  return text.data();
}

void AppendTextRepr(const Text& text, Heap& heap, TextBuilder& out) {
  heap.Look(text.size());
  const std::string& bytes = text.bytes();
  const bool doubled = bytes.find('\'') != bytes.npos && bytes.find('"') == bytes.npos;
  const char quote = doubled ? '"' : '\'';
  out.Add(std::string(1, quote), Source::kData);
  text.ForEachRun([&](std::string_view run, Source source) {
    size_t copied = 0;
    for (size_t i = 0; i < run.size();) {
      const size_t begin = i;
      const char32_t c = NextCodePoint(run, i);
      std::string escape;
      if (c == static_cast<unsigned char>(quote) || c == '\\') {
        escape = {'\\', static_cast<char>(c)};
      } else if (c == '\n') {
        escape = "\\n";
      } else if (c == '\r') {
        escape = "\\r";
      } else if (c == '\t') {
        escape = "\\t";
      } else if (c < ' ' || (c >= 0x7F && !IsPrintable(c))) {
        escape = Escaped(c);
      } else {
        continue;
      }
      out.Add(run.substr(copied, begin - copied), source);
      out.Add(escape, source);
      copied = i;
    }
    out.Add(run.substr(copied), source);
  });
  out.Add(std::string(1, quote), Source::kData);
}

void AppendItems(const std::vector<Value>& items, std::string_view open, std::string_view close,
                 Heap& heap, TextBuilder& out) {
  out.Add(open, Source::kData);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.Add(", ", Source::kData);
    AppendRepr(items[i], heap, out);
  }
  out.Add(close, Source::kData);
}

void AppendList(const List& list, Heap& heap, TextBuilder& out) {
  const std::vector<Value>& items = list.items;
  switch (list.kind) {
    case List::kList:
      return AppendItems(items, "[", "]", heap, out);
    case List::kTuple:
      return AppendItems(items, "(", items.size() == 1 ? ",)" : ")", heap, out);
    case List::kKeys:
      return AppendItems(items, "dict_keys([", "])", heap, out);
    case List::kValues:
      return AppendItems(items, "dict_values([", "])", heap, out);
    case List::kItems:
      return AppendItems(items, "dict_items([", "])", heap, out);
    case List::kRange:
    case List::kGenerator:
      throw Failure("a " + std::string(list.kind == List::kRange ? "range" : "generator") +
                    " has no text; expected: the filter list");
  }
}

void AppendDict(const Dict& dict, Heap& heap, TextBuilder& out) {
  out.Add("{", Source::kData);
  for (size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out.Add(", ", Source::kData);
    AppendRepr(dict.entries[i].first, heap, out);
    out.Add(": ", Source::kData);
    AppendRepr(dict.entries[i].second, heap, out);
  }
  out.Add("}", Source::kData);
}

// str() of a value without parts, other than a text.
std::string PlainText(const Value& value) {
  if (value.is_none()) return "None";
  if (const bool* const boolean = value.boolean()) return *boolean ? "True" : "False";
  if (const int64_t* const integer = value.integer()) return std::to_string(*integer);
  if (const double* const real = value.real()) return FloatText(*real);
  throw Failure("a value of type " + std::string(value.TypeName()) + " has no text");
}

}  // namespace

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<size_t>(end.ptr - buffer.data()));
  const size_t e = text.find('e');
  const int exponent = std::stoi(std::string(text.substr(e + 1)));
  if (exponent < -4 || exponent >= 16) return std::string(text);
  const auto fixed =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
  std::string plain(buffer.data(), static_cast<size_t>(fixed.ptr - buffer.data()));
  if (plain.find('.') == plain.npos) plain += ".0";
  return plain;
}

Text Str(Heap& heap, const Value& value) {
  if (const Text* const text = value.text()) return *text;
  if (value.is_undefined()) return {};
  if (value.list() == nullptr && value.dict() == nullptr) {
    return {PlainText(value), Source::kTemplate};
  }
  TextBuilder out(heap);
  AppendRepr(value, heap, out);
  return out.TakeText();
}

void AppendRepr(const Value& value, Heap& heap, TextBuilder& out) {
  heap.Step();
  if (const Text* const text = value.text()) return AppendTextRepr(*text, heap, out);
  if (const List* const list = value.list()) return AppendList(*list, heap, out);
  if (const Dict* const dict = value.dict()) return AppendDict(*dict, heap, out);
  out.Add(value.is_undefined() ? "Undefined" : PlainText(value), Source::kData);
}

}  // namespace triptych::jinja
