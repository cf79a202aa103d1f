#include "engine/jinja/json_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>

#include "engine/jinja/value_text.h"

namespace triptych::jinja {
namespace {

std::string UnitEscape(unsigned unit) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "\\u%04x", unit & 0xFFFF);
  return text.data();
}

// The escape sequence of a character; empty if it has none.
std::string JsonEscape(char32_t c, bool ensure_ascii) {
  constexpr std::string_view kCharacters = "\"\\\n\r\t\f\b";
  constexpr std::string_view kLetters = "\"\\nrtfb";
  if (c < 0x80) {
    const size_t at = kCharacters.find(static_cast<char>(c));
    if (at != kCharacters.npos) return {'\\', kLetters[at]};
  }
  if (c < ' ') return UnitEscape(c);
  if (!ensure_ascii || c < 0x7F) return "";
  if (c == 0x7F) return "";
  if (c < 0x10000) return UnitEscape(c);
  return UnitEscape(0xD800 + ((c - 0x10000) >> 10)) + UnitEscape(0xDC00 + ((c - 0x10000) & 0x3FF));
}

class JsonWriter {
 public:
  JsonWriter(Heap& heap, const JsonStyle& style) : heap_(heap), style_(style), out_(heap) {}

  void Write(const Value& value, int level) {
    heap_.Step();
    if (const Text* const text = value.text()) {
      String(*text);
    } else if (const List* const list = value.list()) {
      Array(*list, level);
    } else if (const Dict* const dict = value.dict()) {
      Object(*dict, level);
    } else {
      Mark(Scalar(value));
    }
  }

  Value Take() { return out_.Take(); }

 private:
  void Mark(std::string_view text) { out_.Add(text, Source::kData); }

  static std::string Scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (const bool* const boolean = value.boolean()) return *boolean ? "true" : "false";
    if (const int64_t* const integer = value.integer()) return std::to_string(*integer);
    if (const double* const real = value.real()) {
      if (std::isnan(*real)) return "NaN";
      if (std::isinf(*real)) return *real < 0 ? "-Infinity" : "Infinity";
      return FloatText(*real);
    }
    throw Failure("a value of type " + std::string(value.TypeName()) + " is not JSON");
  }

  void String(const Text& text) {
    heap_.Look(text.size());
    Mark("\"");
    text.ForEachRun([&](std::string_view run, Source source) {
      size_t copied = 0;
      for (size_t i = 0; i < run.size();) {
        const size_t begin = i;
        const std::string escape = JsonEscape(NextCodePoint(run, i), style_.ensure_ascii);
        if (escape.empty()) continue;
        out_.Add(run.substr(copied, begin - copied), source);
        out_.Add(escape, source);
        copied = i;
      }
      out_.Add(run.substr(copied), source);
    });
    Mark("\"");
  }

  void Line(int level) {
    if (!style_.indent) return;
    Mark("\n");
    for (int i = 0; i < level; ++i) out_.Add(*style_.indent);
  }

  void Array(const List& list, int level) {
    if (list.kind != List::kList && list.kind != List::kTuple) {
      throw Failure("a " + std::string(list.kind == List::kRange ? "range" : "generator or view") +
                    " is not JSON; expected: the filter list");
    }
    if (list.items.empty()) return Mark("[]");
    Mark("[");
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.Add(style_.item_separator);
      Line(level + 1);
      Write(list.items[i], level + 1);
    }
    Line(level);
    Mark("]");
  }

  void Object(const Dict& dict, int level) {
    if (dict.entries.empty()) return Mark("{}");
    heap_.Work(dict.entries.size() * sizeof(const Dict::Entry*));
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* left, const auto* right) {
        const Text* const one = left->first.text();
        const Text* const other = right->first.text();
        if (one == nullptr || other == nullptr) throw Failure("sort_keys needs keys of type str");
        heap_.Work(std::min(one->size(), other->size()));
        return one->bytes() < other->bytes();
      });
    }
    Mark("{");
    bool first = true;
    for (const Dict::Entry* const entry : entries) {
      if (!std::exchange(first, false)) out_.Add(style_.item_separator);
      Line(level + 1);
      if (const Text* const key = entry->first.text()) {
        String(*key);
      } else {
        Mark('"' + Scalar(entry->first) + '"');
      }
      out_.Add(style_.key_separator);
      Write(entry->second, level + 1);
    }
    Line(level);
    Mark("}");
  }

  Heap& heap_;
  const JsonStyle& style_;
  TextBuilder out_;
};

}  // namespace

Value ToJson(Heap& heap, const Value& value, const JsonStyle& style) {
  JsonWriter writer(heap, style);
  writer.Write(value, 0);
  return writer.Take();
}

}  // namespace triptych::jinja
