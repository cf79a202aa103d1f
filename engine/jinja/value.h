// Values of templates, with the meaning of Python's.
#ifndef TRIPTYCH_ENGINE_JINJA_VALUE_H_
#define TRIPTYCH_ENGINE_JINJA_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/jinja/heap.h"
#include "engine/jinja/text.h"

namespace triptych::jinja {

class Value;
struct TextValue;
struct List;
struct Dict;
struct Object;

// Maximum nesting of lists and dicts: destroying and printing a value recurse.
inline constexpr int kMaxValueDepth = 64;

// Bytes of a small object, and of the allocator's overhead.
inline constexpr size_t kObjectBytes = 64;

// A missing variable or member. Its use as an operand fails with `why`.
struct Undefined {
  std::shared_ptr<const std::string> why;
};

// A value is immutable, except for a Namespace. Copies share it.
class Value {
 public:
  // Undefined without a name.
  Value() = default;
  // Undefined, charged to the heap.
  static Value Missing(Heap& heap, std::string why);
  // The factories without a Heap are for the data and the constants of a template. Their memory
  // counts in no budget.
  static Value None() { return Value(nullptr); }
  static Value Of(bool value) { return Value(value); }
  static Value Of(int64_t value) { return Value(value); }
  static Value Of(double value) { return Value(value); }
  static Value Of(std::string_view text, Source source);
  static Value Of(std::vector<Value> items);
  static Value Of(std::vector<std::pair<std::string, Value>> members, Source source);

  bool is_undefined() const { return std::holds_alternative<Undefined>(value_); }
  bool is_none() const { return std::holds_alternative<std::nullptr_t>(value_); }
  // Null if the value is of another type.
  const Undefined* undefined() const { return std::get_if<Undefined>(&value_); }
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&value_); }
  const double* real() const { return std::get_if<double>(&value_); }
  const Text* text() const;
  const List* list() const;
  const Dict* dict() const;
  template <typename T = Object>
  T* object() const;

  // Levels of lists and dicts.
  int depth() const;
  // Python's name of the type, for messages.
  std::string_view TypeName() const;
  // Python's bool().
  bool Truth() const;

  template <typename T>
  explicit Value(std::shared_ptr<T> shared) : value_(std::move(shared)) {}

 private:
  template <typename T>
  requires std::is_same_v<T, bool> || std::is_same_v<T, int64_t> || std::is_same_v<T, double> ||
      std::is_same_v<T, std::nullptr_t>
  explicit Value(T value) : value_(value) {}

  std::variant<Undefined, std::nullptr_t, bool, int64_t, double, std::shared_ptr<const TextValue>,
               std::shared_ptr<const List>, std::shared_ptr<const Dict>, std::shared_ptr<Object>>
      value_;
};

struct TextValue {
  explicit TextValue(Text value) : text(std::move(value)) {}
  TextValue(Heap& heap, Text value);

  const Text text;
  const Heap::Charge charge;
};

struct List {
  enum Kind { kList, kTuple, kRange, kGenerator, kKeys, kValues, kItems };

  explicit List(std::vector<Value> values);
  List(Heap& heap, Kind list_kind, std::vector<Value> values);

  const Kind kind = kList;
  const std::vector<Value> items;
  const int depth;
  mutable bool consumed = false;  // of kGenerator: a second iteration has no items
  const Heap::Charge charge;
};

// A text that equal keys share: 1, 1.0 and true are equal. Counts in no budget if `heap` is null.
// Throws Failure if the value cannot be a key.
std::string KeyText(Heap* heap, const Value& key);
// Counts the search for such a text among a number of keys.
void CountSearch(Heap& heap, const std::string& key, size_t keys);

struct Dict {
  using Entry = std::pair<Value, Value>;

  Dict() = default;
  explicit Dict(std::vector<Entry> entries_in) : Dict(nullptr, std::move(entries_in)) {}
  Dict(Heap& heap, std::vector<Entry> entries_in);

  // Null if there is no such key. Throws Failure if it cannot be a key.
  const Value* Find(Heap& heap, const Value& key) const;
  const Value* Find(Heap& heap, std::string_view key) const;

  std::vector<Entry> entries;  // in order of insertion; a later equal key has replaced the value
  int depth = 1;

 private:
  // Counts in no budget if `heap` is null.
  Dict(Heap* heap, std::vector<Entry> entries_in);
  const Value* FindText(Heap& heap, const std::string& key) const;

  std::map<std::string, size_t, std::less<>> index_;  // of entries, by KeyText
  std::unique_ptr<Heap::Charge> charge_;
};

// Namespaces, loops and callables.
struct Object {
  virtual ~Object() = default;
  virtual std::string_view TypeName() const = 0;
  virtual bool is_callable() const { return false; }
  virtual int depth() const { return 1; }
  // The value of object.name; absent if there is none.
  virtual std::optional<Value> Attribute(Heap& heap, std::string_view name);
};

struct Namespace final : Object {
  // `bytes`: of the names of that many members.
  Namespace(Heap& heap, size_t size, size_t bytes) : charge(heap, 256 * (size + 1) + bytes) {}
  std::string_view TypeName() const override { return "Namespace"; }
  std::optional<Value> Attribute(Heap& heap, std::string_view name) override;

  std::map<std::string, Value, std::less<>> members;
  const Heap::Charge charge;
};

template <typename T>
T* Value::object() const {
  const auto* const shared = std::get_if<std::shared_ptr<Object>>(&value_);
  return shared == nullptr ? nullptr : dynamic_cast<T*>(shared->get());
}

// The whole number of an int or a bool.
std::optional<int64_t> WholeNumber(const Value& value);
// The number of an int, a bool or a float.
std::optional<double> RealNumber(const Value& value);

// Values of a rendering, charged to its heap.
Value MakeText(Heap& heap, Text text);
Value MakeText(Heap& heap, std::string_view text, Source source);
Value MakeList(Heap& heap, std::vector<Value> items, List::Kind kind = List::kList);
Value MakeDict(Heap& heap, std::vector<Dict::Entry> entries);

// Text that grows in a rendering. Throws before it exceeds the heap.
class TextBuilder {
 public:
  explicit TextBuilder(Heap& heap) : heap_(heap), charge_(heap, 0) {}

  void Add(const Text& text) { Add(text, 0, text.size()); }
  void Add(const Text& text, size_t begin, size_t end) {
    Grow(end - begin + Text::kRunBytes * (text.runs() > 1 ? text.RunsIn(begin, end) : 0));
    text_.Append(text, begin, end);
  }
  void Add(std::string_view bytes, Source source) {
    Grow(bytes.size());
    text_.Append(bytes, source);
  }
  size_t size() const { return text_.size(); }
  Value Take() { return MakeText(heap_, std::move(text_)); }
  Text TakeText() { return std::move(text_); }

 private:
  void Grow(size_t bytes) {
    heap_.Work(bytes);
    charge_.Add(bytes);
  }

  Heap& heap_;
  Heap::Charge charge_;
  Text text_;
};

}  // namespace triptych::jinja

#endif  // TRIPTYCH_ENGINE_JINJA_VALUE_H_
