// Arguments of calls in templates.
#ifndef TRIPTYCH_ENGINE_JINJA_ARGUMENTS_H_
#define TRIPTYCH_ENGINE_JINJA_ARGUMENTS_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/jinja/value.h"

namespace triptych::jinja {

struct Arguments {
  std::vector<Value> positional = {};
  std::vector<std::pair<std::string, Value>> named = {};

  // Null if absent.
  const Value* Named(std::string_view name) const;
  // Without the first.
  Arguments Rest() const;
};

// Arguments by the names of parameters.
class Parameters {
 public:
  // Throws Failure if there are more arguments, or fewer than `required`; `callee` names the callee
  // in messages. The arguments must outlive this.
  Parameters(std::string_view callee, const Arguments& arguments,
             std::initializer_list<std::string_view> names, size_t required = 0);

  // Null if absent.
  const Value* operator[](size_t index) const { return values_[index]; }
  // Defaults if absent. Throw Failure if the value is of another type.
  const Text* TextAt(size_t index) const;  // null if absent or None
  int64_t IntegerAt(size_t index, int64_t otherwise) const;
  bool TruthAt(size_t index, bool otherwise) const;

 private:
  [[noreturn]] void Refuse(size_t index, std::string_view allowed) const;

  const std::string callee_;
  const std::vector<std::string> names_;
  std::vector<const Value*> values_;
};

}  // namespace triptych::jinja

#endif  // TRIPTYCH_ENGINE_JINJA_ARGUMENTS_H_
