#include "engine/jinja/value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace triptych::jinja {
namespace {

// Bytes of an object besides its contents: its counts, and the allocator's overhead.
constexpr size_t kObjectBytes = 64;

template <typename Entries, typename Depth>
int DepthOf(const Entries& entries, Depth depth_of) {
  int depth = 0;
  for (const auto& entry : entries) depth = std::max(depth, depth_of(entry));
  if (depth < kMaxValueDepth) return depth + 1;
  throw Failure("values are nested more than " + std::to_string(kMaxValueDepth) + " levels deep",
                RenderError::kLimit);
}

int ListDepth(const std::vector<Value>& items) {
  return DepthOf(items, [](const Value& item) { return item.depth(); });
}

// A text that equal keys share: 1, 1.0 and true are equal.
std::string KeyText(const Value& key) {
  if (const Text* const text = key.text()) return "s" + text->bytes();
  if (const bool* const boolean = key.boolean()) return *boolean ? "i1" : "i0";
  if (const int64_t* const integer = key.integer()) return "i" + std::to_string(*integer);
  if (const double* const real = key.real()) {
    if (*real == std::floor(*real) && std::abs(*real) < 9e18) {
      return "i" + std::to_string(static_cast<int64_t>(*real));
    }
    std::array<char, 64> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), *real);
    return "f" + std::string(digits.data(), end.ptr);
  }
  if (key.is_none()) return "n";
  if (const List* const list = key.list(); list != nullptr && list->kind == List::kTuple) {
    std::string text = "t";
    for (const Value& item : list->items) {
      const std::string part = KeyText(item);
      text += std::to_string(part.size()) + ":" + part;
    }
    return text;
  }
  throw Failure("a key is of type " + std::string(key.TypeName()) + "; allowed: hashable values");
}

}  // namespace

Value Value::Missing(std::string why) {
  Value value;
  value.value_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return value;
}

Value Value::Of(std::string_view text, Source source) {
  return Value(std::shared_ptr<const TextValue>(std::make_shared<TextValue>(Text(text, source))));
}

Value Value::Of(std::vector<Value> items) {
  return Value(std::shared_ptr<const List>(std::make_shared<List>(std::move(items))));
}

Value Value::Of(std::vector<std::pair<std::string, Value>> members, Source source) {
  std::vector<Dict::Entry> entries;
  entries.reserve(members.size());
  for (auto& [name, value] : members) entries.emplace_back(Of(name, source), std::move(value));
  return Value(std::shared_ptr<const Dict>(std::make_shared<Dict>(std::move(entries))));
}

const Text* Value::text() const {
  const auto* const shared = std::get_if<std::shared_ptr<const TextValue>>(&value_);
  return shared == nullptr ? nullptr : &(*shared)->text;
}

const List* Value::list() const {
  const auto* const shared = std::get_if<std::shared_ptr<const List>>(&value_);
  return shared == nullptr ? nullptr : shared->get();
}

const Dict* Value::dict() const {
  const auto* const shared = std::get_if<std::shared_ptr<const Dict>>(&value_);
  return shared == nullptr ? nullptr : shared->get();
}

int Value::depth() const {
  if (const List* const items = list()) return items->depth;
  if (const Dict* const members = dict()) return members->depth;
  if (const Object* const other = object()) return other->depth();
  return 0;
}

std::string_view Value::TypeName() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (boolean() != nullptr) return "bool";
  if (integer() != nullptr) return "int";
  if (real() != nullptr) return "float";
  if (text() != nullptr) return "str";
  if (dict() != nullptr) return "dict";
  if (const Object* const other = object()) return other->TypeName();
  switch (list()->kind) {
    case List::kList:
      return "list";
    case List::kTuple:
      return "tuple";
    case List::kRange:
      return "range";
    case List::kGenerator:
      return "generator";
    case List::kKeys:
      return "dict_keys";
    case List::kValues:
      return "dict_values";
    case List::kItems:
      return "dict_items";
  }
  return "";
}

bool Value::Truth() const {
  if (is_undefined() || is_none()) return false;
  if (const bool* const value = boolean()) return *value;
  if (const int64_t* const value = integer()) return *value != 0;
  if (const double* const value = real()) return *value != 0;
  if (const Text* const value = text()) return !value->empty();
  if (const List* const value = list()) {
    return value->kind == List::kGenerator || !value->items.empty();
  }
  if (const Dict* const value = dict()) return !value->entries.empty();
  return true;
}

TextValue::TextValue(Heap& heap, Text value)
    : text(std::move(value)), charge(heap, kObjectBytes + sizeof(TextValue) + text.MemoryBytes()) {}

List::List(std::vector<Value> values) : items(std::move(values)), depth(ListDepth(items)) {}

List::List(Heap& heap, Kind list_kind, std::vector<Value> values)
    : kind(list_kind),
      items(std::move(values)),
      depth(ListDepth(items)),
      charge(heap, kObjectBytes + sizeof(List) + items.capacity() * sizeof(Value)) {}

Dict::Dict(std::vector<Entry> entries_in, int) {
  entries.reserve(entries_in.size());
  for (Entry& entry : entries_in) {
    const auto [found, added] = index_.emplace(KeyText(entry.first), entries.size());
    if (added) {
      entries.push_back(std::move(entry));
    } else {
      entries[found->second].second = std::move(entry.second);
    }
  }
  depth = DepthOf(entries, [](const Entry& entry) {
    return std::max(entry.first.depth(), entry.second.depth());
  });
}

Dict::Dict(Heap& heap, std::vector<Entry> entries_in) : Dict(std::move(entries_in), 0) {
  size_t bytes = kObjectBytes + sizeof(Dict);
  for (const auto& [key, place] : index_) {
    bytes += 2 * kObjectBytes + sizeof(Entry) + key.capacity();
  }
  charge_ = std::make_unique<Heap::Charge>(heap, bytes);
}

const Value* Dict::Find(const Value& key) const {
  const auto found = index_.find(KeyText(key));
  return found == index_.end() ? nullptr : &entries[found->second].second;
}

const Value* Dict::Find(std::string_view key) const {
  const auto found = index_.find("s" + std::string(key));
  return found == index_.end() ? nullptr : &entries[found->second].second;
}

std::optional<Value> Object::Attribute(Heap&, std::string_view) { return std::nullopt; }

std::optional<Value> Namespace::Attribute(Heap&, std::string_view name) {
  const auto found = members.find(name);
  return found == members.end() ? std::nullopt : std::optional(found->second);
}

std::optional<int64_t> WholeNumber(const Value& value) {
  if (const int64_t* const integer = value.integer()) return *integer;
  if (const bool* const boolean = value.boolean()) return *boolean ? 1 : 0;
  return std::nullopt;
}

std::optional<double> RealNumber(const Value& value) {
  if (const double* const real = value.real()) return *real;
  const auto whole = WholeNumber(value);
  return whole ? std::optional(static_cast<double>(*whole)) : std::nullopt;
}

Value MakeText(Heap& heap, Text text) {
  heap.Work(text.size());
  return Value(
      std::shared_ptr<const TextValue>(std::make_shared<TextValue>(heap, std::move(text))));
}

Value MakeText(Heap& heap, std::string_view text, Source source) {
  return MakeText(heap, Text(text, source));
}

Value MakeList(Heap& heap, std::vector<Value> items, List::Kind kind) {
  heap.Step(static_cast<int64_t>(items.size()));
  return Value(std::shared_ptr<const List>(std::make_shared<List>(heap, kind, std::move(items))));
}

Value MakeDict(Heap& heap, std::vector<Dict::Entry> entries) {
  return Value(std::shared_ptr<const Dict>(std::make_shared<Dict>(heap, std::move(entries))));
}

}  // namespace triptych::jinja
