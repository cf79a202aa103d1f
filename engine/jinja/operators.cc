#include "engine/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "engine/jinja/methods.h"
#include "engine/jinja/text_functions.h"

namespace triptych::jinja {
namespace {

[[noreturn]] void RefuseTypes(std::string_view sign, const Value& left, const Value& right) {
  RequireDefined(left);
  RequireDefined(right);
  throw Failure("'" + std::string(sign) + "' is not defined for " + std::string(left.TypeName()) +
                " and " + std::string(right.TypeName()));
}

[[noreturn]] void RefuseOverflow() {
  throw Failure("a number is out of range; allowed: integers of 64 bits");
}

bool SameListKind(const List& left, const List& right) { return left.kind == right.kind; }

Value BinaryReal(std::string_view sign, double left, double right) {
  if (sign == "+") return Value::Of(left + right);
  if (sign == "-") return Value::Of(left - right);
  if (sign == "*") return Value::Of(left * right);
  if (sign == "**") return Value::Of(std::pow(left, right));
  if (right == 0) throw Failure("division by zero");
  if (sign == "/") return Value::Of(left / right);
  const double floor = std::floor(left / right);
  if (sign == "//") return Value::Of(floor);
  double rest = std::fmod(left, right);
  if (rest != 0 && (rest < 0) != (right < 0)) rest += right;
  return Value::Of(rest);
}

Value Power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) throw Failure("division by zero");
    return Value::Of(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 0 || base == 1) return Value::Of(exponent == 0 ? int64_t{1} : base);
  if (base == -1) return Value::Of(exponent % 2 == 0 ? int64_t{1} : int64_t{-1});
  int64_t power = 1;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(power, base, &power)) RefuseOverflow();
  }
  return Value::Of(power);
}

Value BinaryWhole(std::string_view sign, int64_t left, int64_t right) {
  int64_t result = 0;
  if (sign == "+") {
    if (__builtin_add_overflow(left, right, &result)) RefuseOverflow();
    return Value::Of(result);
  }
  if (sign == "-") {
    if (__builtin_sub_overflow(left, right, &result)) RefuseOverflow();
    return Value::Of(result);
  }
  if (sign == "*") {
    if (__builtin_mul_overflow(left, right, &result)) RefuseOverflow();
    return Value::Of(result);
  }
  if (sign == "**") return Power(left, right);
  if (right == 0) throw Failure("division by zero");
  if (sign == "/") return Value::Of(static_cast<double>(left) / static_cast<double>(right));
  if (right == -1) {
    if (sign == "%") return Value::Of(int64_t{0});
    if (__builtin_sub_overflow(int64_t{0}, left, &result)) RefuseOverflow();
    return Value::Of(result);
  }
  int64_t quotient = left / right;
  int64_t rest = left % right;
  if (rest != 0 && (rest < 0) != (right < 0)) {
    rest += right;
    --quotient;
  }
  return Value::Of(sign == "//" ? quotient : rest);
}

Value Repeat(Heap& heap, const Value& value, int64_t times) {
  if (const Text* const text = value.text()) {
    TextBuilder out(heap);
    for (int64_t i = 0; i < times && !text->empty(); ++i) out.Add(*text);
    return out.Take();
  }
  const List& list = *value.list();
  std::vector<Value> items;
  for (int64_t i = 0; i < times && !list.items.empty(); ++i) {
    heap.Step(static_cast<int64_t>(list.items.size()));
    heap.Require((items.size() + list.items.size()) * sizeof(Value));
    items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return MakeList(heap, std::move(items), list.kind);
}

bool IsPlainSequence(const Value& value) {
  const List* const list = value.list();
  return value.text() != nullptr ||
         (list != nullptr && (list->kind == List::kList || list->kind == List::kTuple));
}

// An index from the end if negative; absent if it is out of range.
std::optional<size_t> IndexIn(int64_t index, size_t size) {
  const auto count = static_cast<int64_t>(size);
  if (index < 0) index += count;
  if (index < 0 || index >= count) return std::nullopt;
  return static_cast<size_t>(index);
}

Value CodePointAt(Heap& heap, const Text& text, int64_t index) {
  heap.Scan(2 * text.size());
  const auto place = IndexIn(index, CountCodePoints(text.bytes()));
  if (!place) return {};
  const auto [begin, end] = CodePointRange(text.bytes(), *place, *place + 1);
  return MakeText(heap, text.Sub(begin, end));
}

std::string ShownKey(const Value& key) {
  if (const Text* const text = key.text()) return "'" + text->bytes().substr(0, 80) + "'";
  if (const auto number = WholeNumber(key)) return std::to_string(*number);
  return "of type " + std::string(key.TypeName());
}

Value MissingMember(Heap& heap, const Value& value, const std::string& member) {
  return Value::Missing(heap,
                        "'" + std::string(value.TypeName()) + " object' has no member " + member);
}

// value[key] without attributes; absent if there is none.
std::optional<Value> Subscript(Heap& heap, const Value& value, const Value& key) {
  if (const Dict* const dict = value.dict()) {
    if (key.list() != nullptr && key.list()->kind != List::kTuple) return std::nullopt;
    if (key.dict() != nullptr || key.is_undefined() || key.object() != nullptr) return std::nullopt;
    const Value* const found = dict->Find(heap, key);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  const auto index = WholeNumber(key);
  if (!index) return std::nullopt;
  if (const Text* const text = value.text()) {
    Value one = CodePointAt(heap, *text, *index);
    return one.is_undefined() ? std::nullopt : std::optional(std::move(one));
  }
  const List* const list = value.list();
  if (list == nullptr || list->kind > List::kRange) return std::nullopt;
  const auto place = IndexIn(*index, list->items.size());
  return place ? std::optional(list->items[*place]) : std::nullopt;
}

}  // namespace

void RequireDefined(const Value& value) {
  const Undefined* const undefined = value.undefined();
  if (undefined == nullptr) return;
  throw Failure(undefined->why == nullptr ? "a value is undefined" : *undefined->why);
}

bool Equal(Heap& heap, const Value& left, const Value& right) {
  heap.Step();
  const auto whole_left = WholeNumber(left);
  const auto whole_right = WholeNumber(right);
  if (whole_left && whole_right) return *whole_left == *whole_right;
  const auto real_left = RealNumber(left);
  const auto real_right = RealNumber(right);
  if (real_left && real_right) return *real_left == *real_right;
  const Text* const text_left = left.text();
  const Text* const text_right = right.text();
  if (text_left != nullptr && text_right != nullptr) {
    heap.Work(std::min(text_left->size(), text_right->size()));
    return text_left->bytes() == text_right->bytes();
  }
  if (const List* one = left.list(), *other = right.list(); one != nullptr && other != nullptr) {
    return SameListKind(*one, *other) &&
           std::equal(one->items.begin(), one->items.end(), other->items.begin(),
                      other->items.end(),
                      [&](const Value& a, const Value& b) { return Equal(heap, a, b); });
  }
  if (const Dict* one = left.dict(), *other = right.dict(); one != nullptr && other != nullptr) {
    if (one->entries.size() != other->entries.size()) return false;
    return std::all_of(one->entries.begin(), one->entries.end(), [&](const Dict::Entry& entry) {
      const Value* const found = other->Find(heap, entry.first);
      return found != nullptr && Equal(heap, entry.second, *found);
    });
  }
  if (left.object() != nullptr) return left.object() == right.object();
  return (left.is_none() && right.is_none()) || (left.is_undefined() && right.is_undefined());
}

int Compare(Heap& heap, std::string_view sign, const Value& left, const Value& right) {
  heap.Step();
  const auto order = [](const auto& a, const auto& b) { return a < b ? -1 : b < a ? 1 : 0; };
  const auto whole_left = WholeNumber(left);
  const auto whole_right = WholeNumber(right);
  if (whole_left && whole_right) return order(*whole_left, *whole_right);
  const auto real_left = RealNumber(left);
  const auto real_right = RealNumber(right);
  if (real_left && real_right) return order(*real_left, *real_right);
  const Text* const text_left = left.text();
  const Text* const text_right = right.text();
  if (text_left != nullptr && text_right != nullptr) {
    heap.Work(std::min(text_left->size(), text_right->size()));
    return order(text_left->bytes(), text_right->bytes());
  }
  const List* const list_left = left.list();
  const List* const list_right = right.list();
  if (list_left != nullptr && list_right != nullptr && SameListKind(*list_left, *list_right) &&
      list_left->kind <= List::kTuple) {
    const size_t shorter = std::min(list_left->items.size(), list_right->items.size());
    for (size_t i = 0; i < shorter; ++i) {
      if (!Equal(heap, list_left->items[i], list_right->items[i])) {
        return Compare(heap, sign, list_left->items[i], list_right->items[i]);
      }
    }
    return order(list_left->items.size(), list_right->items.size());
  }
  RefuseTypes(sign, left, right);
}

bool Contains(Heap& heap, const Value& container, const Value& item) {
  heap.Step();
  if (const Text* const text = container.text()) {
    const Text* const part = item.text();
    if (part == nullptr) RefuseTypes("in", item, container);
    return FindText(heap, text->bytes(), part->bytes()) != std::string::npos;
  }
  if (const List* const list = container.list()) {
    return std::any_of(list->items.begin(), list->items.end(),
                       [&](const Value& one) { return Equal(heap, one, item); });
  }
  if (const Dict* const dict = container.dict()) {
    return !item.is_undefined() && dict->Find(heap, item) != nullptr;
  }
  if (container.is_undefined()) return false;
  RefuseTypes("in", item, container);
}

Value Binary(Heap& heap, std::string_view sign, const Value& left, const Value& right) {
  heap.Step();
  const auto whole_left = WholeNumber(left);
  const auto whole_right = WholeNumber(right);
  if (whole_left && whole_right) return BinaryWhole(sign, *whole_left, *whole_right);
  const auto real_left = RealNumber(left);
  const auto real_right = RealNumber(right);
  if (real_left && real_right) return BinaryReal(sign, *real_left, *real_right);
  const Text* const text_left = left.text();
  if (sign == "%" && text_left != nullptr) return FormatPercent(heap, *text_left, right);
  if (sign == "+") {
    const Text* const text_right = right.text();
    if (text_left != nullptr && text_right != nullptr) {
      TextBuilder out(heap);
      out.Add(*text_left);
      out.Add(*text_right);
      return out.Take();
    }
    if (const List* one = left.list(), *other = right.list();
        one != nullptr && other != nullptr && SameListKind(*one, *other) && IsPlainSequence(left)) {
      heap.Step(static_cast<int64_t>(one->items.size() + other->items.size()));
      heap.Require((one->items.size() + other->items.size()) * sizeof(Value));
      std::vector<Value> items = one->items;
      items.insert(items.end(), other->items.begin(), other->items.end());
      return MakeList(heap, std::move(items), one->kind);
    }
  }
  if (sign == "*") {
    if (IsPlainSequence(left) && whole_right) return Repeat(heap, left, *whole_right);
    if (IsPlainSequence(right) && whole_left) return Repeat(heap, right, *whole_left);
  }
  RefuseTypes(sign, left, right);
}

Value Negate(const Value& operand) {
  RequireDefined(operand);
  if (const auto whole = WholeNumber(operand)) {
    if (*whole == std::numeric_limits<int64_t>::min()) RefuseOverflow();
    return Value::Of(-*whole);
  }
  if (const auto real = RealNumber(operand)) return Value::Of(-*real);
  throw Failure("'-' is not defined for " + std::string(operand.TypeName()));
}

Value GetAttribute(Heap& heap, const Value& value, std::string_view name) {
  heap.Step();
  RequireDefined(value);
  switch (FindMethod(value, name)) {
    case MethodKind::kSafe:
      return BoundMethod(heap, value, std::string(name));
    case MethodKind::kMutates:
      return Value::Missing(heap, "the method '" + std::string(name) +
                                      "' changes its object, which is " + "not allowed");
    case MethodKind::kNone:
      break;
  }
  if (const Dict* const dict = value.dict()) {
    if (const Value* const found = dict->Find(heap, name)) return *found;
  } else if (Object* const object = value.object()) {
    if (auto found = object->Attribute(heap, name)) return *std::move(found);
  }
  return MissingMember(heap, value, "'" + std::string(name.substr(0, 80)) + "'");
}

Value GetItem(Heap& heap, const Value& value, const Value& key) {
  heap.Step();
  RequireDefined(value);
  if (auto found = Subscript(heap, value, key)) return *std::move(found);
  if (const Text* const name = key.text()) return GetAttribute(heap, value, name->bytes());
  return MissingMember(heap, value, ShownKey(key));
}

Value GetSlice(Heap& heap, const Value& value, const Value* begin, const Value* end,
               const Value* step) {
  RequireDefined(value);
  const Text* const text = value.text();
  const List* const list = value.list();
  if (text == nullptr && (list == nullptr || list->kind > List::kRange)) {
    throw Failure("a value of type " + std::string(value.TypeName()) + " has no slices");
  }
  if (text != nullptr) heap.Scan(2 * text->size());
  const auto count =
      static_cast<int64_t>(text != nullptr ? CountCodePoints(text->bytes()) : list->items.size());
  const auto bound = [&](const Value* one, int64_t otherwise, int64_t least, int64_t most) {
    if (one == nullptr || one->is_none()) return otherwise;
    RequireDefined(*one);
    const auto number = WholeNumber(*one);
    if (!number) throw Failure("a slice has a bound of type " + std::string(one->TypeName()));
    return std::clamp(*number < 0 ? *number + count : *number, least, most);
  };
  const auto given = step == nullptr || step->is_none() ? 1 : WholeNumber(*step);
  if (!given) throw Failure("a slice has a step of type " + std::string(step->TypeName()));
  const int64_t stride = *given;
  if (stride == 0) throw Failure("a slice has the step 0");
  const int64_t first =
      stride > 0 ? bound(begin, 0, 0, count) : bound(begin, count - 1, -1, count - 1);
  const int64_t last = stride > 0 ? bound(end, count, 0, count) : bound(end, -1, -1, count - 1);
  if (text != nullptr && stride == 1) {
    const auto [from, to] = CodePointRange(text->bytes(), static_cast<size_t>(first),
                                           static_cast<size_t>(std::max(first, last)));
    return MakeText(heap, text->Sub(from, to));
  }
  const Value all = ToList(heap, value);
  std::vector<Value> items;
  for (int64_t i = first; stride > 0 ? i < last : i > last;) {
    heap.Step();
    items.push_back(all.list()->items[static_cast<size_t>(i)]);
    if (__builtin_add_overflow(i, stride, &i)) break;
  }
  if (text == nullptr) return MakeList(heap, std::move(items), list->kind);
  TextBuilder out(heap);
  for (const Value& item : items) out.Add(*item.text());
  return out.Take();
}

Value ToList(Heap& heap, const Value& value) {
  heap.Step();
  if (const List* const list = value.list()) {
    if (list->kind != List::kGenerator) return value;
    if (!std::exchange(list->consumed, true)) return value;
    return MakeList(heap, {});
  }
  std::vector<Value> items;
  if (const Dict* const dict = value.dict()) {
    heap.Step(static_cast<int64_t>(dict->entries.size()));
    for (const Dict::Entry& entry : dict->entries) items.push_back(entry.first);
  } else if (const Text* const text = value.text()) {
    for (size_t i = 0; i < text->size();) {
      const size_t begin = i;
      NextCodePoint(text->bytes(), i);
      heap.Step();
      items.push_back(MakeText(heap, text->Sub(begin, i)));
    }
  } else if (!value.is_undefined()) {
    throw Failure("a value of type " + std::string(value.TypeName()) + " cannot be iterated");
  }
  return MakeList(heap, std::move(items));
}

int64_t Length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const Text* const text = value.text()) {
    return static_cast<int64_t>(CountCodePoints(text->bytes()));
  }
  if (const Dict* const dict = value.dict()) return static_cast<int64_t>(dict->entries.size());
  const List* const list = value.list();
  if (list == nullptr || list->kind == List::kGenerator) {
    throw Failure("a value of type " + std::string(value.TypeName()) + " has no length");
  }
  return static_cast<int64_t>(list->items.size());
}

}  // namespace triptych::jinja
