#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <string>

#include "engine/base/parse.h"
#include "engine/jinja/builtins.h"
#include "engine/jinja/json_text.h"
#include "engine/jinja/methods.h"
#include "engine/jinja/operators.h"
#include "engine/jinja/text_functions.h"
#include "engine/jinja/value_text.h"

namespace triptych::jinja {
namespace {

Value Trim(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("trim", arguments, {"chars"});
  const Text text = Str(heap, input);
  const Text* const characters = parameters.TextAt(0);
  const auto [begin, end] = Strip(
      heap, text.bytes(), {},
      characters == nullptr ? std::nullopt : std::optional<std::string_view>(characters->bytes()));
  return MakeText(heap, text.Sub(begin, end));
}

Value ToJsonFilter(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("tojson", arguments,
                              {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.ensure_ascii = parameters.TruthAt(0, false),
                  .sort_keys = parameters.TruthAt(3, false)};
  if (const Value* const indent = parameters[1]; indent != nullptr && !indent->is_none()) {
    if (indent->text() != nullptr) {
      style.indent = *indent->text();
    } else {
      const int64_t width = parameters.IntegerAt(1, 0);
      if (width > 64)
        throw Failure("tojson: indent is " + std::to_string(width) + "; allowed: at most 64");
      style.indent =
          Text(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '), Source::kData);
    }
  }
  style.item_separator = Text(style.indent ? "," : ", ", Source::kData);
  style.key_separator = Text(": ", Source::kData);
  if (const Value* const pair = parameters[2]; pair != nullptr && !pair->is_none()) {
    const List* const list = pair->list();
    if (list == nullptr || list->items.size() != 2 || list->items[0].text() == nullptr ||
        list->items[1].text() == nullptr) {
      throw Failure("tojson: separators are not two texts");
    }
    style.item_separator = *list->items[0].text();
    style.key_separator = *list->items[1].text();
  }
  return ToJson(heap, input, style);
}

Value LengthFilter(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("length", arguments, {});
  if (input.text() != nullptr) heap.Scan(input.text()->size());
  return Value::Of(Length(input));
}

Value Default(Heap&, const Value& input, const Arguments& arguments) {
  const Parameters parameters("default", arguments, {"default_value", "boolean"});
  const bool absent = input.is_undefined() || (parameters.TruthAt(1, false) && !input.Truth());
  if (!absent) return input;
  return parameters[0] == nullptr ? Value::Of("", Source::kTemplate) : *parameters[0];
}

template <LetterCase kCase>
Value CaseFilter(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters(Name(kCase), arguments, {});
  return MapCase(heap, Str(heap, input), kCase);
}

// Jinja's own rule: words begin after blanks, hyphens and opening brackets.
Value Title(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("title", arguments, {});
  const Text text = Str(heap, input);
  const std::string& bytes = text.bytes();
  heap.Scan(2 * text.size());
  TextBuilder out(heap);
  const auto is_break = [](char32_t c) {
    return IsSpace(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) !=
                                          std::string_view::npos);
  };
  for (size_t i = 0; i < bytes.size();) {
    const size_t begin = i;
    size_t first = i;  // end of the first code point of a word
    size_t next = i;
    const bool breaks = is_break(NextCodePoint(bytes, next));
    first = next;
    for (i = next; next < bytes.size(); i = next) {
      if (is_break(NextCodePoint(bytes, next)) != breaks) break;
    }
    if (breaks) {
      out.Add(text, begin, i);
      continue;
    }
    out.Add(*MapCase(heap, text.Sub(begin, first), LetterCase::kUpper).text());
    out.Add(*MapCase(heap, text.Sub(first, i), LetterCase::kLower).text());
  }
  return out.Take();
}

Value ReplaceFilter(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("replace", arguments, {"old", "new", "count"}, 2);
  const bool bounded = parameters[2] != nullptr && !parameters[2]->is_none();
  return Replace(heap, Str(heap, input), Str(heap, *parameters[0]).bytes(),
                 Str(heap, *parameters[1]), bounded ? parameters.IntegerAt(2, -1) : -1);
}

Value StringFilter(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("string", arguments, {});
  return input.text() != nullptr ? input : MakeText(heap, Str(heap, input));
}

// Python's float() of a text.
std::optional<double> ParseReal(Heap& heap, std::string_view text) {
  const auto [begin, end] = Strip(heap, text, {}, std::nullopt);
  std::string_view digits = text.substr(begin, end - begin);
  heap.Look(digits.size());
  if (digits.starts_with('+') && !digits.starts_with("+-")) digits.remove_prefix(1);
  return ParseNumber<double>(digits);
}

Value IntFilter(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("int", arguments, {"default", "base"});
  const Value otherwise = parameters[0] == nullptr ? Value::Of(int64_t{0}) : *parameters[0];
  if (const auto whole = WholeNumber(input)) return Value::Of(*whole);
  std::optional<double> real = RealNumber(input);
  if (const Text* const text = input.text()) {
    const auto [begin, end] = Strip(heap, text->bytes(), {}, std::nullopt);
    heap.Scan(end - begin);
    std::string_view digits = std::string_view(text->bytes()).substr(begin, end - begin);
    if (digits.starts_with('+') && !digits.starts_with("+-")) digits.remove_prefix(1);
    const int64_t base = parameters.IntegerAt(1, 10);
    if (base < 2 || base > 36) throw Failure("int: base is not between 2 and 36");
    const std::string_view prefix = base == 16 ? "0x" : base == 8 ? "0o" : base == 2 ? "0b" : "";
    if (!prefix.empty() && digits.starts_with(prefix)) digits.remove_prefix(2);
    int64_t value = 0;
    const char* const last = digits.data() + digits.size();
    const auto read = std::from_chars(digits.data(), last, value, static_cast<int>(base));
    if (read.ec == std::errc() && read.ptr == last) return Value::Of(value);
    real = ParseReal(heap, text->bytes());
  }
  if (!real || !(std::abs(*real) < 9e18)) return otherwise;
  return Value::Of(static_cast<int64_t>(*real));
}

Value FloatFilter(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("float", arguments, {"default"});
  if (const auto real = RealNumber(input)) return Value::Of(*real);
  if (const Text* const text = input.text()) {
    if (const auto real = ParseReal(heap, text->bytes())) return Value::Of(*real);
  }
  return parameters[0] == nullptr ? Value::Of(0.0) : *parameters[0];
}

Value Abs(Heap&, const Value& input, const Arguments& arguments) {
  const Parameters parameters("abs", arguments, {});
  const auto real = RealNumber(input);
  return real && *real >= 0 ? input : Negate(input);
}

constexpr int64_t kRoundSteps = 128;  // prints up to 300 digits

Value Round(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("round", arguments, {"precision", "method"});
  const int64_t precision = parameters.IntegerAt(0, 0);
  const Text* const given = parameters.TextAt(1);
  const std::string method = given == nullptr ? "common" : given->bytes();
  RequireDefined(input);
  const auto real = RealNumber(input);
  if (!real) throw Failure("round needs a number");
  if (precision < -300 || precision > 300) throw Failure("round: precision is out of range");
  heap.Step(kRoundSteps);
  if (method == "ceil" || method == "floor") {
    const double scale = std::pow(10, static_cast<double>(precision));
    const double scaled = *real * scale;
    return Value::Of((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
  }
  if (method != "common") throw Failure("round: method is not common, ceil or floor");
  if (input.real() == nullptr && precision >= 0) return Value::Of(*WholeNumber(input));
  if (precision < 0) {
    const double scale = std::pow(10, static_cast<double>(-precision));
    const double rounded = std::nearbyint(*real / scale) * scale;
    return input.real() != nullptr ? Value::Of(rounded) : Value::Of(static_cast<int64_t>(rounded));
  }
  std::array<char, 1024> text{};
  std::snprintf(text.data(), text.size(), "%.*f", static_cast<int>(precision), *real);
  return Value::Of(ParseNumber<double>(text.data()).value_or(*real));
}

Value Indent(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("indent", arguments, {"width", "first", "blank"});
  const bool has_text = parameters[0] != nullptr && parameters[0]->text() != nullptr;
  const int64_t width = has_text ? 0 : parameters.IntegerAt(0, 4);
  if (width > 1000)
    throw Failure("indent: width is " + std::to_string(width) + "; allowed: at most 1000");
  const Text indentation =
      has_text ? *parameters[0]->text()
               : Text(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '),
                      Source::kTemplate);
  const bool first = parameters.TruthAt(1, false);
  const bool blank = parameters.TruthAt(2, false);
  Text text = Str(heap, input);
  text.Append("\n", Source::kTemplate);  // as Jinja adds it, for the last line
  const std::vector<ByteRange> lines = SplitLines(text.bytes(), /*keep_ends=*/false, heap);
  TextBuilder out(heap);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.Add("\n", Source::kTemplate);
    const bool is_empty = lines[i].first == lines[i].second;
    if (i == 0 ? first : blank || !is_empty) out.Add(indentation);
    out.Add(text, lines[i].first, lines[i].second);
  }
  return out.Take();
}

Value Escape(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("escape", arguments, {});
  const Text text = Str(heap, input);
  heap.Look(text.size());
  TextBuilder out(heap);
  size_t copied = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    constexpr std::string_view kCharacters = "&<>'\"";
    constexpr std::array<std::string_view, 5> kNames = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const size_t found = kCharacters.find(text.bytes()[i]);
    if (found == kCharacters.npos) continue;
    out.Add(text, copied, i);
    out.Add(kNames[found], text.SourceAt(i));
    copied = i + 1;
  }
  out.Add(text, copied, text.size());
  return out.Take();
}

Value WordCount(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("wordcount", arguments, {});
  const Text text = Str(heap, input);
  heap.Work(4 * text.size());
  int64_t count = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const char32_t c = NextCodePoint(text.bytes(), i);
    const bool is_word =
        c == '_' || CallMethod(heap, MakeText(heap, text.Sub(begin, i)), "isalnum", {}).Truth();
    if (is_word && !inside) ++count;
    inside = is_word;
  }
  return Value::Of(count);
}

Value FormatFilter(Heap& heap, const Value& input, const Arguments& arguments) {
  if (arguments.named.empty()) {
    return FormatPercent(heap, Str(heap, input),
                         MakeList(heap, arguments.positional, List::kTuple));
  }
  std::vector<Dict::Entry> entries;
  for (const auto& [name, value] : arguments.named)
    entries.emplace_back(MakeText(heap, name, Source::kData), value);
  return FormatPercent(heap, Str(heap, input), MakeDict(heap, std::move(entries)));
}

Value Center(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("center", arguments, {"width"});
  return CallMethod(heap, MakeText(heap, Str(heap, input)), "center",
                    {.positional = {Value::Of(parameters.IntegerAt(0, 80))}});
}

Value Attr(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("attr", arguments, {"name"}, 1);
  const Text name = Str(heap, *parameters[0]);
  RequireDefined(input);
  if (input.dict() != nullptr && FindMethod(input, name.bytes()) == MethodKind::kNone) {
    return Value::Missing(heap, "a dict has no attribute '" + name.bytes().substr(0, 80) + "'");
  }
  return GetAttribute(heap, input, name.bytes());
}

}  // namespace

Filter FindFilter(std::string_view name) {
  static const std::map<std::string_view, Filter> filters = {
      {"abs", Abs},
      {"attr", Attr},
      {"capitalize", CaseFilter<LetterCase::kCapitalized>},
      {"center", Center},
      {"count", LengthFilter},
      {"d", Default},
      {"default", Default},
      {"e", Escape},
      {"escape", Escape},
      {"float", FloatFilter},
      {"forceescape", Escape},
      {"format", FormatFilter},
      {"indent", Indent},
      {"int", IntFilter},
      {"length", LengthFilter},
      {"lower", CaseFilter<LetterCase::kLower>},
      {"replace", ReplaceFilter},
      {"round", Round},
      {"safe", StringFilter},
      {"string", StringFilter},
      {"title", Title},
      {"tojson", ToJsonFilter},
      {"trim", Trim},
      {"upper", CaseFilter<LetterCase::kUpper>},
      {"wordcount", WordCount},
  };
  const auto found = filters.find(name);
  return found == filters.end() ? FindListFilter(name) : found->second;
}

}  // namespace triptych::jinja
