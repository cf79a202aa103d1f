#include "engine/jinja/value.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>

namespace triptych::jinja {
namespace {

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

std::string KeyOfText(std::string_view text) {
  return ("s" + std::to_string(text.size()) + ":").append(text);
}

// Appends the text of a key, which ends where it says.
void AppendKey(Heap* heap, const Value& key, std::string& out) {
  const Text* const text = key.text();
  if (heap != nullptr) {
    const size_t bytes = text == nullptr ? 0 : text->size();
    heap->Work(bytes);
    heap->Require(out.size() + bytes);
  }
  if (text != nullptr) {
    out += KeyOfText(text->bytes());
  } else if (const bool* const boolean = key.boolean()) {
    out += *boolean ? "i1;" : "i0;";
  } else if (const int64_t* const integer = key.integer()) {
    out += "i" + std::to_string(*integer) + ";";
  } else if (const double* const real = key.real()) {
    if (*real == std::floor(*real) && std::abs(*real) < 9e18) {
      out += "i" + std::to_string(static_cast<int64_t>(*real)) + ";";
    } else {
      std::array<char, 64> digits;
      const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), *real);
      out += "f" + std::string(digits.data(), end.ptr) + ";";
    }
  } else if (key.is_none()) {
    out += "n";
  } else if (const List* const list = key.list(); list != nullptr && list->kind == List::kTuple) {
    out += "(";
    for (const Value& item : list->items) AppendKey(heap, item, out);
    out += ")";
  } else {
    throw Failure("a key is of type " + std::string(key.TypeName()) + "; allowed: hashable values");
  }
}

}  // namespace

std::string KeyText(Heap* heap, const Value& key) {
  std::string text;
  AppendKey(heap, key, text);
  return text;
}

void CountSearch(Heap& heap, const std::string& key, size_t keys) {
  heap.Work(key.size() * static_cast<size_t>(std::bit_width(keys)));
}

Value Value::Missing(Heap& heap, std::string why) {
  struct Reason {
    const std::string text;
    const Heap::Charge charge;
  };
  const size_t bytes = 2 * kObjectBytes + why.size();
  const std::shared_ptr<const Reason> reason(new Reason{std::move(why), {heap, bytes}});
  Value value;
  value.value_ = Undefined{{reason, &reason->text}};
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

Dict::Dict(Heap* heap, std::vector<Entry> entries_in) {
  entries.reserve(entries_in.size());
  size_t key_bytes = 0;
  for (Entry& entry : entries_in) {
    std::string key = KeyText(heap, entry.first);
    key_bytes += key.size();
    if (heap != nullptr) heap->Require(key_bytes);
    if (heap != nullptr) CountSearch(*heap, key, entries.size());
    const auto [found, added] = index_.emplace(std::move(key), entries.size());
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

Dict::Dict(Heap& heap, std::vector<Entry> entries_in) : Dict(&heap, std::move(entries_in)) {
  size_t bytes = kObjectBytes + sizeof(Dict);
  for (const auto& [key, place] : index_) {
    bytes += 2 * kObjectBytes + sizeof(Entry) + key.capacity();
  }
  charge_ = std::make_unique<Heap::Charge>(heap, bytes);
}

const Value* Dict::Find(Heap& heap, const Value& key) const {
  return FindText(heap, KeyText(&heap, key));
}

const Value* Dict::Find(Heap& heap, std::string_view key) const {
  heap.Work(key.size());
  return FindText(heap, KeyOfText(key));
}

const Value* Dict::FindText(Heap& heap, const std::string& key) const {
  CountSearch(heap, key, entries.size());
  const auto found = index_.find(key);
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
  heap.Work(text.size() + Text::kRunBytes * text.runs());
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
