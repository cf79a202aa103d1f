// Methods of values, and formats.
#ifndef TRIPTYCH_ENGINE_JINJA_METHODS_H_
#define TRIPTYCH_ENGINE_JINJA_METHODS_H_

#include <string>
#include <string_view>

#include "engine/jinja/arguments.h"
#include "engine/jinja/value.h"

namespace triptych::jinja {

// Methods of Python's type of a value, including those that CallMethod lacks.
enum class MethodKind { kNone, kSafe, kMutates };
MethodKind FindMethod(const Value& value, std::string_view name);
// The result of value.name(arguments). Throws Failure.
Value CallMethod(Heap& heap, const Value& value, std::string_view name, const Arguments& arguments);
// A method as a value.
Value BoundMethod(Heap& heap, const Value& value, std::string name);

struct Callable : Object {
  std::string_view TypeName() const override { return "function"; }
  bool is_callable() const override { return true; }
  virtual Value Call(Heap& heap, const Arguments& arguments) = 0;
};

// str % arguments.
Value FormatPercent(Heap& heap, const Text& format, const Value& arguments);
// str.format(arguments): fields by place or name, without specifications.
Value FormatBraces(Heap& heap, const Text& format, const Arguments& arguments);

}  // namespace triptych::jinja

#endif  // TRIPTYCH_ENGINE_JINJA_METHODS_H_
