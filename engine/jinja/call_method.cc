#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "engine/jinja/methods.h"
#include "engine/jinja/operators.h"
#include "engine/jinja/text_functions.h"
#include "engine/jinja/value_text.h"

namespace triptych::jinja {
namespace {

// `name`: the method's, for messages.
using TextMethod = Value (*)(Heap& heap, std::string_view name, const Text& text,
                             const Arguments& arguments);

std::optional<std::string_view> View(const Text* text) {
  return text == nullptr ? std::nullopt : std::optional<std::string_view>(text->bytes());
}

Value MakeParts(Heap& heap, const Text& text, const std::vector<ByteRange>& parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const auto& [begin, end] : parts) items.push_back(MakeText(heap, text.Sub(begin, end)));
  return MakeList(heap, std::move(items));
}

template <bool kLeft, bool kRight>
Value StripMethod(Heap& heap, std::string_view name, const Text& text, const Arguments& arguments) {
  const Parameters parameters(name, arguments, {"chars"});
  const auto [begin, end] =
      Strip(heap, text.bytes(), {.left = kLeft, .right = kRight}, View(parameters.TextAt(0)));
  return MakeText(heap, text.Sub(begin, end));
}

template <bool kFromRight>
Value SplitMethod(Heap& heap, std::string_view name, const Text& text, const Arguments& arguments) {
  const Parameters parameters(name, arguments, {"sep", "maxsplit"});
  const auto separator = View(parameters.TextAt(0));
  if (separator && separator->empty()) throw Failure("split has an empty separator");
  return MakeParts(heap, text,
                   Split(text.bytes(), separator, parameters.IntegerAt(1, -1), kFromRight, heap));
}

Value SplitLinesMethod(Heap& heap, std::string_view name, const Text& text,
                       const Arguments& arguments) {
  const Parameters parameters(name, arguments, {"keepends"});
  return MakeParts(heap, text, SplitLines(text.bytes(), parameters.TruthAt(0, false), heap));
}

template <bool kFromRight>
Value PartitionMethod(Heap& heap, std::string_view name, const Text& text,
                      const Arguments& arguments) {
  const Parameters parameters(name, arguments, {"sep"}, 1);
  const Text* const separator = parameters.TextAt(0);
  if (separator == nullptr || separator->empty()) throw Failure("partition has an empty separator");
  const size_t size = text.size();
  const size_t found = kFromRight ? FindLastText(heap, text.bytes(), separator->bytes())
                                  : FindText(heap, text.bytes(), separator->bytes());
  std::vector<ByteRange> parts = {
      {0, found}, {found, found + separator->size()}, {found + separator->size(), size}};
  if (found == std::string::npos) {
    parts = kFromRight ? std::vector<ByteRange>{{0, 0}, {0, 0}, {0, size}}
                       : std::vector<ByteRange>{{0, size}, {size, size}, {size, size}};
  }
  const Value list = MakeParts(heap, text, parts);
  return MakeList(heap, list.list()->items, List::kTuple);
}

template <bool kStart>
bool IsAffix(Heap& heap, std::string_view text, const Value& affix) {
  if (const Text* const one = affix.text()) {
    heap.Work(std::min(text.size(), one->size()));
    return kStart ? text.starts_with(one->bytes()) : text.ends_with(one->bytes());
  }
  const List* const several = affix.list();
  if (several == nullptr || several->kind != List::kTuple) {
    RequireDefined(affix);
    throw Failure("startswith and endswith need a str or a tuple of these, not a " +
                  std::string(affix.TypeName()));
  }
  return std::any_of(several->items.begin(), several->items.end(), [&](const Value& one) {
    return one.text() != nullptr && IsAffix<kStart>(heap, text, one);
  });
}

template <bool kStart>
Value AffixMethod(Heap& heap, std::string_view name, const Text& text, const Arguments& arguments) {
  const Parameters parameters(name, arguments, {"prefix", "start", "end"}, 1);
  if (parameters[1] == nullptr) {
    return Value::Of(IsAffix<kStart>(heap, text.bytes(), *parameters[0]));
  }
  const Value part = GetSlice(heap, MakeText(heap, text), parameters[1], parameters[2], nullptr);
  return Value::Of(IsAffix<kStart>(heap, part.text()->bytes(), *parameters[0]));
}

template <bool kStart>
Value RemoveAffixMethod(Heap& heap, std::string_view name, const Text& text,
                        const Arguments& arguments) {
  const Parameters parameters(name, arguments, {kStart ? "prefix" : "suffix"}, 1);
  const Text* const affix = parameters.TextAt(0);
  if (affix == nullptr || !IsAffix<kStart>(heap, text.bytes(), *parameters[0])) {
    return MakeText(heap, text);
  }
  const size_t size = affix->size();
  return MakeText(heap, kStart ? text.Sub(size, text.size()) : text.Sub(0, text.size() - size));
}

Value ReplaceMethod(Heap& heap, std::string_view name, const Text& text,
                    const Arguments& arguments) {
  const Parameters parameters(name, arguments, {"old", "new", "count"}, 2);
  const Text* const from = parameters.TextAt(0);
  const Text* const to = parameters.TextAt(1);
  if (from == nullptr || to == nullptr) throw Failure("replace needs two values of type str");
  return Replace(heap, text, from->bytes(), *to, parameters.IntegerAt(2, -1));
}

template <LetterCase kCase>
Value CaseMethod(Heap& heap, std::string_view name, const Text& text, const Arguments& arguments) {
  const Parameters parameters(name, arguments, {});
  return MapCase(heap, text, kCase);
}

Value JoinMethod(Heap& heap, std::string_view name, const Text& text, const Arguments& arguments) {
  const Parameters parameters(name, arguments, {"iterable"}, 1);
  const Value list = ToList(heap, *parameters[0]);
  TextBuilder out(heap);
  bool first = true;
  for (const Value& item : list.list()->items) {
    if (!std::exchange(first, false)) out.Add(text);
    RequireDefined(item);
    if (item.text() == nullptr) {
      throw Failure("join needs values of type str, not " + std::string(item.TypeName()));
    }
    out.Add(*item.text());
  }
  return out.Take();
}

template <bool kFromRight, bool kFails>
Value FindMethodOfText(Heap& heap, std::string_view name, const Text& text,
                       const Arguments& arguments) {
  const Parameters parameters(name, arguments, {"sub", "start", "end"}, 1);
  const Text* const part = parameters.TextAt(0);
  if (part == nullptr) throw Failure(std::string(name) + " needs a str");
  const std::string& bytes = text.bytes();
  heap.Scan(3 * bytes.size());
  const auto count = static_cast<int64_t>(CountCodePoints(bytes));
  const auto bound = [&](size_t index, int64_t otherwise) {
    const int64_t value = parameters.IntegerAt(index, otherwise);
    return static_cast<size_t>(std::clamp<int64_t>(value < 0 ? value + count : value, 0, count));
  };
  const auto [begin, end] =
      CodePointRange(bytes, bound(1, 0), std::max(bound(1, 0), bound(2, count)));
  const std::string_view range = std::string_view(bytes).substr(0, end);
  size_t found = kFromRight ? FindLastText(heap, range, part->bytes())
                            : FindText(heap, range, part->bytes(), begin);
  if (found != std::string_view::npos && found < begin) found = std::string_view::npos;
  if (found == std::string_view::npos) {
    if (kFails) throw Failure("the substring is not in the text");
    return Value::Of(int64_t{-1});
  }
  return Value::Of(static_cast<int64_t>(CountCodePoints(range.substr(0, found))));
}

Value CountMethod(Heap& heap, std::string_view name, const Text& text, const Arguments& arguments) {
  const Parameters parameters(name, arguments, {"sub"}, 1);
  const Text* const part = parameters.TextAt(0);
  if (part == nullptr) throw Failure("count needs a str");
  heap.Scan(text.size());
  if (part->empty()) return Value::Of(static_cast<int64_t>(CountCodePoints(text.bytes()) + 1));
  int64_t count = 0;
  for (size_t i = FindText(heap, text.bytes(), part->bytes()); i != std::string::npos;
       i = FindText(heap, text.bytes(), part->bytes(), i + part->size())) {
    ++count;
  }
  return Value::Of(count);
}

template <bool (*kIs)(char32_t)>
Value EveryMethod(Heap& heap, std::string_view name, const Text& text, const Arguments& arguments) {
  const Parameters parameters(name, arguments, {});
  heap.Look(text.size());
  for (size_t i = 0; i < text.size();) {
    if (!kIs(NextCodePoint(text.bytes(), i))) return Value::Of(false);
  }
  return Value::Of(!text.empty());
}

bool IsAlpha(char32_t c) { return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_L_MASK) != 0; }
bool IsNumeric(char32_t c) {
  return u_getNumericValue(static_cast<UChar32>(c)) != U_NO_NUMERIC_VALUE;
}
bool IsDecimal(char32_t c) { return u_charType(static_cast<UChar32>(c)) == U_DECIMAL_DIGIT_NUMBER; }
bool IsDigit(char32_t c) {
  const int type = u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_NUMERIC_TYPE);
  return type == U_NT_DECIMAL || type == U_NT_DIGIT;
}
bool IsAlphanumeric(char32_t c) { return IsAlpha(c) || IsNumeric(c); }

template <bool kUpper>
Value IsCaseMethod(Heap& heap, std::string_view name, const Text& text,
                   const Arguments& arguments) {
  const Parameters parameters(name, arguments, {});
  heap.Look(2 * text.size());
  bool cased = false;
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<UChar32>(NextCodePoint(text.bytes(), i));
    if (u_hasBinaryProperty(c, kUpper ? UCHAR_LOWERCASE : UCHAR_UPPERCASE) ||
        u_charType(c) == U_TITLECASE_LETTER) {
      return Value::Of(false);
    }
    cased = cased || u_hasBinaryProperty(c, kUpper ? UCHAR_UPPERCASE : UCHAR_LOWERCASE);
  }
  return Value::Of(cased);
}

template <int kSide>  // -1: text at the left, 0: in the middle, 1: at the right
Value JustifyMethod(Heap& heap, std::string_view name, const Text& text,
                    const Arguments& arguments) {
  const Parameters parameters(name, arguments, {"width", "fillchar"}, 1);
  const Text* const given = parameters.TextAt(1);
  const Text fill = given == nullptr ? Text(" ", Source::kTemplate)
                                     : given->Sub(0, std::min<size_t>(given->size(), 8));
  heap.Scan(text.size());
  if (CountCodePoints(fill.bytes()) != 1) throw Failure("a fill character is not one character");
  const int64_t lacks = std::max<int64_t>(
      0, parameters.IntegerAt(0, 0) - static_cast<int64_t>(CountCodePoints(text.bytes())));
  int64_t left = kSide < 0 ? 0 : lacks;
  if (kSide == 0) left = lacks / 2 + (lacks & parameters.IntegerAt(0, 0) & 1);
  TextBuilder out(heap);
  for (int64_t i = 0; i < left; ++i) out.Add(fill);
  out.Add(text);
  for (int64_t i = left; i < lacks; ++i) out.Add(fill);
  return out.Take();
}

Value FormatMethod(Heap& heap, std::string_view, const Text& text, const Arguments& arguments) {
  return FormatBraces(heap, text, arguments);
}

// Python's methods of str; null those that are not supported.
const std::map<std::string_view, TextMethod>& TextMethods() {
  static const std::map<std::string_view, TextMethod> methods = {
      {"capitalize", CaseMethod<LetterCase::kCapitalized>},
      {"casefold", CaseMethod<LetterCase::kLower>},
      {"center", JustifyMethod<0>},
      {"count", CountMethod},
      {"encode", nullptr},
      {"endswith", AffixMethod<false>},
      {"expandtabs", nullptr},
      {"find", FindMethodOfText<false, false>},
      {"format", FormatMethod},
      {"format_map", nullptr},
      {"index", FindMethodOfText<false, true>},
      {"isalnum", EveryMethod<IsAlphanumeric>},
      {"isalpha", EveryMethod<IsAlpha>},
      {"isascii", nullptr},
      {"isdecimal", EveryMethod<IsDecimal>},
      {"isdigit", EveryMethod<IsDigit>},
      {"isidentifier", nullptr},
      {"islower", IsCaseMethod<false>},
      {"isnumeric", EveryMethod<IsNumeric>},
      {"isprintable", nullptr},
      {"isspace", EveryMethod<IsSpace>},
      {"istitle", nullptr},
      {"isupper", IsCaseMethod<true>},
      {"join", JoinMethod},
      {"ljust", JustifyMethod<-1>},
      {"lower", CaseMethod<LetterCase::kLower>},
      {"lstrip", StripMethod<true, false>},
      {"maketrans", nullptr},
      {"partition", PartitionMethod<false>},
      {"removeprefix", RemoveAffixMethod<true>},
      {"removesuffix", RemoveAffixMethod<false>},
      {"replace", ReplaceMethod},
      {"rfind", FindMethodOfText<true, false>},
      {"rindex", FindMethodOfText<true, true>},
      {"rjust", JustifyMethod<1>},
      {"rpartition", PartitionMethod<true>},
      {"rsplit", SplitMethod<true>},
      {"rstrip", StripMethod<false, true>},
      {"split", SplitMethod<false>},
      {"splitlines", SplitLinesMethod},
      {"startswith", AffixMethod<true>},
      {"strip", StripMethod<true, true>},
      {"swapcase", nullptr},
      {"title", CaseMethod<LetterCase::kTitle>},
      {"translate", nullptr},
      {"upper", CaseMethod<LetterCase::kUpper>},
      {"zfill", nullptr},
  };
  return methods;
}

constexpr std::array<std::string_view, 6> kDictMethods = {"copy",  "fromkeys", "get",
                                                          "items", "keys",     "values"};
constexpr std::array<std::string_view, 5> kDictMutators = {"clear", "pop", "popitem", "setdefault",
                                                           "update"};
constexpr std::array<std::string_view, 3> kListMethods = {"copy", "count", "index"};
constexpr std::array<std::string_view, 8> kListMutators = {"append", "clear",  "extend",  "insert",
                                                           "pop",    "remove", "reverse", "sort"};

template <size_t kSize>
bool IsIn(const std::array<std::string_view, kSize>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

[[noreturn]] void RefuseMethod(const Value& value, std::string_view name) {
  throw Failure("the method '" + std::string(name) + "' of " + std::string(value.TypeName()) +
                " is not supported");
}

Value CallDictMethod(Heap& heap, const Value& value, std::string_view name,
                     const Arguments& arguments) {
  const Dict& dict = *value.dict();
  if (name == "get") {
    const Parameters parameters("get", arguments, {"key", "default"}, 1);
    const Value* const found =
        parameters[0]->is_undefined() ? nullptr : dict.Find(heap, *parameters[0]);
    if (found != nullptr) return *found;
    return parameters[1] == nullptr ? Value::None() : *parameters[1];
  }
  const Parameters parameters(name, arguments, {});
  if (name == "copy") return value;
  std::vector<Value> items;
  heap.Step(static_cast<int64_t>(dict.entries.size()));
  for (const Dict::Entry& entry : dict.entries) {
    if (name == "keys") {
      items.push_back(entry.first);
    } else if (name == "values") {
      items.push_back(entry.second);
    } else if (name == "items") {
      items.push_back(MakeList(heap, {entry.first, entry.second}, List::kTuple));
    } else {
      RefuseMethod(value, name);
    }
  }
  return MakeList(heap, std::move(items),
                  name == "keys"     ? List::kKeys
                  : name == "values" ? List::kValues
                                     : List::kItems);
}

Value CallListMethod(Heap& heap, const Value& value, std::string_view name,
                     const Arguments& arguments) {
  const std::vector<Value>& items = value.list()->items;
  if (name == "copy") return value;
  const Parameters parameters(name, arguments, {"value"}, 1);
  int64_t count = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!Equal(heap, items[i], *parameters[0])) continue;
    if (name == "index") return Value::Of(static_cast<int64_t>(i));
    ++count;
  }
  if (name == "index") throw Failure("the value is not in the list");
  return Value::Of(count);
}

struct Method final : Callable {
  Method(Heap& heap, Value value, std::string method)
      : self(std::move(value)), name(std::move(method)), charge(heap, kObjectBytes) {}
  int depth() const override { return self.depth() + 1; }
  Value Call(Heap& heap, const Arguments& arguments) override {
    return CallMethod(heap, self, name, arguments);
  }

  const Value self;
  const std::string name;
  const Heap::Charge charge;
};

}  // namespace

MethodKind FindMethod(const Value& value, std::string_view name) {
  if (value.text() != nullptr) {
    return TextMethods().contains(name) ? MethodKind::kSafe : MethodKind::kNone;
  }
  if (value.dict() != nullptr) {
    if (IsIn(kDictMutators, name)) return MethodKind::kMutates;
    return IsIn(kDictMethods, name) ? MethodKind::kSafe : MethodKind::kNone;
  }
  const List* const list = value.list();
  if (list == nullptr || list->kind > List::kTuple) return MethodKind::kNone;
  if (list->kind == List::kList && IsIn(kListMutators, name)) return MethodKind::kMutates;
  return IsIn(kListMethods, name) ? MethodKind::kSafe : MethodKind::kNone;
}

Value CallMethod(Heap& heap, const Value& value, std::string_view name,
                 const Arguments& arguments) {
  heap.Step();
  if (value.dict() != nullptr) return CallDictMethod(heap, value, name, arguments);
  if (value.list() != nullptr) return CallListMethod(heap, value, name, arguments);
  const auto found = TextMethods().find(name);
  if (value.text() == nullptr || found == TextMethods().end() || found->second == nullptr) {
    RefuseMethod(value, name);
  }
  return found->second(heap, found->first, *value.text(), arguments);
}

Value BoundMethod(Heap& heap, const Value& value, std::string name) {
  return Value(std::shared_ptr<Object>(std::make_shared<Method>(heap, value, std::move(name))));
}

}  // namespace triptych::jinja
